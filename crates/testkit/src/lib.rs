//! Whole-system test kit: a backend in this process, clients in one line, links that can be cut, delayed or made to
//! lose replies, relays that count and hold back, and the auditor. For tests only; everything in it is the real thing
//! but link and relay.
//!
//! ```no_run
//! # async fn example() {
//! use highwater_testkit::{Link, TestBackend, TestClient};
//!
//! let backend = TestBackend::start().await;
//! let link = Link::to(backend.address()).await;
//! let alice = TestClient::new(&link.url()).await;
//! let bob = TestClient::new(&backend.url()).await;
//! let group = alice.create_group([bob.inbox_id()]).await.unwrap();
//! link.cut();
//! group.send_text("hello").await.unwrap();
//! bob.sync().await.unwrap();
//! highwater_testkit::assert_clean(&bob).await;
//! # }
//! ```
//!
//! Everything here panics where a test would: a helper that returned an error would only be unwrapped.

mod audit;
mod backend;
mod client;
mod eventually;
mod link;
mod relay;

pub use audit::assert_clean;
pub use backend::TestBackend;
pub use client::TestClient;
pub use eventually::eventually;
pub use link::Link;
pub use relay::{Relay, Traffic};
