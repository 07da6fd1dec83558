//! The server of damper: owns the retry budget of a whole fleet, over HTTP.
//!
//! The domain is in `damper-core`, its clock and locks in `damper-engine`, the wire types in `damper-protocol`;
//! here they meet sockets, configuration, metrics and signals. [`start`] runs a server inside a process, as
//! tests do; [`cli::main`] is the binary.
//!
//! ```
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let config = damper_server::Config::default().on_any_port();
//! let server = damper_server::start(config).await?;
//! println!("http://{}/v1/dependencies", server.local_addr());
//! server.shutdown().await?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod api;
mod app;
mod body;
mod callers;
mod chronicle;
pub mod cli;
mod config;
mod guard;
mod live;
pub mod local;
mod logs;
mod metrics;
mod mode;
mod phase;
mod problem;
mod serve;
mod shape;
mod sheet;
mod traces;
mod wire;

pub use config::{Config, ConfigError, ConfigFault, Sources};
pub use live::Reloaded;
pub use serve::{Running, ServeError, bind, run, start};
