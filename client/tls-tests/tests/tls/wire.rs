//! Servers that make handshakes, or something else.

use std::{sync::Arc, time::Duration};

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, date_time_ymd};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ConfigBuilder, RootCertStore, ServerConfig, SupportedProtocolVersion, WantsVerifier,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer},
        server::WebPkiClientVerifier,
    },
};

/// A certificate that vouches for itself, and its key.
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    pub pem: String,
}

impl Identity {
    pub fn new(names: &[&str]) -> Self {
        Self::signed(params(names))
    }

    pub fn named(issuer: &str, names: &[&str]) -> Self {
        let mut params = params(names);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, issuer);
        Self::signed(params)
    }

    pub fn expired(names: &[&str]) -> Self {
        let mut params = params(names);
        (params.not_before, params.not_after) = (date_time_ymd(2000, 1, 1), date_time_ymd(2001, 1, 1));
        Self::signed(params)
    }

    fn signed(params: CertificateParams) -> Self {
        // One process, one provider: whichever test is first.
        let _ = ring::default_provider().install_default();
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let (der, pem) = (certificate.der().clone(), certificate.pem());
        Self { certificate: der, key: PrivateKeyDer::try_from(key.serialize_der()).unwrap(), pem }
    }

    /// Whoever comes.
    pub fn accepting(&self, versions: &[&'static SupportedProtocolVersion]) -> ServerConfig {
        let config = ServerConfig::builder_with_protocol_versions(versions).with_no_client_auth();
        config.with_single_cert(vec![self.certificate.clone()], self.key.clone_key()).unwrap()
    }

    /// Those that have a certificate of their own.
    pub fn demanding(&self, version: &'static SupportedProtocolVersion) -> ServerConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
        let config: ConfigBuilder<_, WantsVerifier> =
            ServerConfig::builder_with_protocol_versions(&[version]);
        let config = config.with_client_cert_verifier(verifier);
        config.with_single_cert(vec![self.certificate.clone()], self.key.clone_key()).unwrap()
    }
}

fn params(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
}

/// The port of a server that answers one request on each connection.
pub async fn tls(config: ServerConfig) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let Ok(mut socket) = acceptor.accept(socket).await else { continue };
            let _ = socket.read(&mut [0; 4096]).await;
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
            let _ = socket.shutdown().await;
        }
    });
    port
}

/// How a server leaves.
#[derive(Clone, Copy)]
pub struct Manners {
    /// It reads once before it speaks.
    pub reads: bool,
    /// It resets the connection instead of closing it.
    pub resets: bool,
}

impl Default for Manners {
    fn default() -> Self {
        Self { reads: true, resets: false }
    }
}

/// The port of a server that says this and leaves.
pub async fn raw(bytes: &'static [u8], manners: Manners) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            if manners.reads {
                let _ = socket.read(&mut [0; 16 * 1024]).await;
            }
            let _ = socket.write_all(bytes).await;
            if manners.resets {
                let _ = socket.set_zero_linger();
                continue;
            }
            // To close with unread bytes would be a reset.
            let _ = socket.shutdown().await;
            let _ = tokio::time::timeout(Duration::from_secs(60), socket.read(&mut [0; 16 * 1024])).await;
        }
    });
    port
}

/// A port at which nobody listens.
pub fn closed_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
