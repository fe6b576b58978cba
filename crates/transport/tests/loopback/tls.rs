//! A backend behind TLS, as a load balancer gives it.

use highwater_transport::{ConnectOptions, Connection};
use highwater_wire::Cursor;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tonic::transport::Identity;

use crate::scripted::{Scripted, envelope, queries, topic};

/// A backend for `localhost` that vouches for itself, and its certificate.
async fn secured() -> (Scripted, String) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let identity = Identity::from_pem(cert.pem(), signing_key.serialize_pem());
    let backend = Scripted::start_tls(queries(vec![envelope(topic(1), 1)], false), identity).await;
    (backend, cert.pem())
}

fn connect(host: &str, backend: &Scripted, extra_roots_pem: Vec<String>) -> Connection {
    let options = ConnectOptions { extra_roots_pem, ..ConnectOptions::default() };
    Connection::connect(&format!("https://{host}:{}", backend.address.port()), options).unwrap()
}

#[tokio::test]
async fn a_backend_behind_tls_answers() {
    let (backend, root) = secured().await;
    let page = connect("localhost", &backend, vec![root]).query(&[(topic(1), Cursor::ZERO)], 0).await;
    assert_eq!(page.unwrap().prefixes.len(), 1);
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_or_of_another_host_is_not_trusted() {
    let (backend, root) = secured().await;
    for (host, roots) in [("localhost", Vec::new()), ("127.0.0.1", vec![root])] {
        let error = connect(host, &backend, roots).query(&[(topic(1), Cursor::ZERO)], 0).await.unwrap_err();
        assert!(error.is_retryable(), "{error:?}");
    }
}
