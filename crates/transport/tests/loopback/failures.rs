//! How calls fail, and which side decided.

use crate::scripted::{Link, Script, Scripted, connect, envelope, publishes, queries, topic};
use bytes::Bytes;
use highwater_transport::{ConnectOptions, Connection, TransportError};
use highwater_wire::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

#[tokio::test]
async fn each_status_of_the_backend_becomes_its_own_error() {
    let text = || "scripted".to_owned();
    let message = text();
    let table = [
        (Code::InvalidArgument, false, TransportError::InvalidArgument { message: text(), publish: None }),
        (Code::OutOfRange, false, TransportError::OutOfRange { message: text() }),
        (Code::Aborted, true, TransportError::Aborted { message: text() }),
        (Code::Unavailable, true, TransportError::unavailable(message.clone())),
        (Code::DeadlineExceeded, true, TransportError::DeadlineExceeded { message: text() }),
        (
            Code::ResourceExhausted,
            true,
            TransportError::ResourceExhausted { message: text(), retry_after: None },
        ),
        (Code::Unauthenticated, false, TransportError::Unauthenticated { message: text() }),
        (Code::PermissionDenied, false, TransportError::Refused { message: text() }),
        (Code::Unimplemented, false, TransportError::Unimplemented { message: text() }),
        (Code::Internal, false, TransportError::Internal { message: text() }),
        (Code::Cancelled, false, TransportError::Cancelled { message: text() }),
        (Code::Unknown, true, TransportError::Unexpected { code: "UNKNOWN", message: text() }),
        (Code::NotFound, false, TransportError::Unexpected { code: "NOT_FOUND", message: text() }),
    ];
    for (code, retryable, expected) in table {
        let status = Status::new(code, "scripted");
        let backend = Scripted::start(publishes(Err(status))).await;
        let error = backend.connect().publish(vec![Bytes::new()]).await.unwrap_err();
        assert_eq!(error, expected);
        assert_eq!(error.is_retryable(), retryable, "{error:?}");
        assert_eq!(error.proves_nothing_stored(), code == Code::InvalidArgument);
    }
}

/// Shows: PROC-043.
#[tokio::test]
async fn a_connection_that_was_refused_for_good_sends_nothing_more() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&asked);
    let backend = Scripted::start(Script {
        query_newest: Arc::new(move |_| {
            counts.fetch_add(1, Ordering::Relaxed);
            Box::pin(async { Err(Status::permission_denied("unknown client")) })
        }),
        ..Script::default()
    })
    .await;
    let connection = backend.connect();
    let refused = TransportError::Refused { message: "unknown client".into() };
    connection.not_refused().unwrap();
    assert_eq!(connection.query_newest(&[topic(1)]).await.unwrap_err(), refused);
    assert_eq!(connection.not_refused(), Err(refused.clone()));
    let clone = connection.clone();
    assert_eq!(clone.publish(vec![Bytes::new()]).await.unwrap_err(), refused);
    assert_eq!(clone.query_newest(&[topic(1)]).await.unwrap_err(), refused);
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert!(!refused.is_retryable());
}

#[tokio::test]
async fn the_backends_wish_to_be_left_alone_is_kept() {
    for code in [Code::Unavailable, Code::ResourceExhausted] {
        let details = ErrorDetails::with_retry_info(Some(Duration::from_millis(1_500)));
        let status = Status::with_error_details(code, "later", details);
        let backend = Scripted::start(publishes(Err(status))).await;
        let error = backend.connect().publish(vec![Bytes::new()]).await.unwrap_err();
        assert_eq!(error.retry_after(), Some(Duration::from_millis(1_500)));
    }
}

/// Shows: PROC-021.
#[tokio::test]
async fn a_time_limit_of_this_side_is_no_cancellation_of_the_backends() {
    let backend = Scripted::start(Script {
        query: Arc::new(|_| Box::pin(std::future::pending())),
        ..Script::default()
    })
    .await;
    let options = ConnectOptions { request_timeout: Duration::from_millis(200), ..Default::default() };
    let connection = connect(backend.address, options);
    let error = connection.query(&[(topic(1), Cursor::ZERO)], 0).await.unwrap_err();
    assert!(matches!(error, TransportError::DeadlineExceeded { .. }), "{error:?}");
    assert!(error.is_retryable());
}

/// Shows: PROC-021.
#[tokio::test]
async fn a_cut_connection_is_retryable_and_the_next_call_makes_a_new_one() {
    let (asked, mut asking) = tokio::sync::mpsc::unbounded_channel();
    let backend = Scripted::start(Script {
        query: Arc::new(move |_| {
            asked.send(()).unwrap();
            Box::pin(std::future::pending())
        }),
        ..queries(vec![], false)
    })
    .await;
    let link = Link::to(backend.address).await;
    let connection = connect(link.address, ConnectOptions::default());
    let query = [(topic(1), Cursor::ZERO)];
    let (error, ()) = tokio::join!(connection.query(&query, 0), async {
        asking.recv().await.unwrap();
        link.cut();
    });
    let error = error.unwrap_err();
    assert!(matches!(error, TransportError::Unavailable { .. }), "{error:?}");
    assert!(error.is_retryable() && !error.proves_nothing_stored());

    // Nobody listens there any more.
    let error = connection.query(&query, 0).await.unwrap_err();
    assert!(matches!(error, TransportError::Unavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn a_call_after_the_backend_came_back_succeeds_on_the_same_connection() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let backend = Scripted::start(queries(vec![envelope(topic(1), 1)], false)).await;
    let connection = connect(listener.local_addr().unwrap(), ConnectOptions::default());
    let query = [(topic(1), Cursor::ZERO)];
    let first = tokio::spawn({
        let connection = connection.clone();
        async move { connection.query(&query, 0).await }
    });
    drop(listener.accept().await.unwrap());
    assert!(first.await.unwrap().unwrap_err().is_retryable());

    let again = connection.query(&query, 0);
    let forward = async {
        let (mut near, _) = listener.accept().await.unwrap();
        let mut far = tokio::net::TcpStream::connect(backend.address).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
    };
    let page = tokio::select! {
        page = again => page.unwrap(),
        () = forward => panic!("the forwarder ended first"),
    };
    assert_eq!(page.prefixes.len(), 1);
}

#[tokio::test]
async fn an_address_that_no_network_makes_usable_is_refused_at_once() {
    for url in ["", "not a url", "ftp://host", "/path", "127.0.0.1:5050"] {
        let error = Connection::connect(url, ConnectOptions::default()).unwrap_err();
        assert!(matches!(error, TransportError::BadEndpoint(_)), "{url}: {error:?}");
        assert!(!error.is_retryable());
    }
}
