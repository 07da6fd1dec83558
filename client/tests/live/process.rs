//! A real server in a process of its own, which can be killed, stopped and continued: this test binary once more.

use std::{
    io::Read,
    net::{SocketAddr, TcpListener},
    process::{Child, Command, Stdio},
    time::Duration,
};

const ADDRESS: &str = "DAMPER_TEST_ADDRESS";
const CONFIG: &str = "DAMPER_TEST_CONFIG";

/// The server.
pub struct Process {
    address: SocketAddr,
    config: String,
    child: Option<Child>,
}

impl Process {
    pub fn start(config: &str) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut server = Self { address, config: config.to_owned(), child: None };
        server.start_again();
        server
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until it answers.
    pub async fn answers(&self) {
        crate::fleet::eventually(async || self.get("/v1/dependencies").await.is_some()).await;
    }

    /// Whether anything was reported of this dependency.
    pub async fn knows(&self, name: &str) -> bool {
        self.get(&format!("/v1/dependencies/{name}")).await.is_some_and(|status| status == 200)
    }

    async fn get(&self, path: &str) -> Option<u16> {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Some(client.get(format!("{}{path}", self.url())).send().await.ok()?.status().as_u16())
    }

    pub fn start_again(&mut self) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "process::a_server", "--ignored", "--nocapture"]);
        command.env(ADDRESS, self.address.to_string()).env(CONFIG, &self.config);
        // The server ends with the pipe, so that it never outlives this process.
        self.child = Some(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap());
    }

    /// It accepts connections as long as the kernel does, and answers nothing.
    pub fn stop(&self) {
        self.signal("-STOP");
    }

    pub fn go_on(&self) {
        self.signal("-CONT");
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    fn signal(&self, signal: &str) {
        let id = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("sh").args(["-c", "kill $0 $1", signal, &id]).status().unwrap().success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
#[ignore = "is the server process of other tests"]
fn a_server() {
    let (Ok(address), Ok(config)) = (std::env::var(ADDRESS), std::env::var(CONFIG)) else { return };
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    let config = damper_server::Config::from_toml(&config).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listener = loop {
            match tokio::net::TcpListener::bind(&address).await {
                Ok(listener) => break listener,
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        };
        damper_server::run(listener, &config, std::future::pending()).await.unwrap();
    });
}
