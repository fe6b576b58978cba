//! From the call of a publish to the envelope in another client's hands, against one unary round trip plus
//! the commit of one row. Nothing else goes on.

use std::time::{Duration, Instant};

use highwater_testkit_postgres::Postgres;
use highwater_wire::proto::backend::{QueryNewestRequest, query_service_client::QueryServiceClient};

use crate::{
    bare::{self, Rows},
    loopback::{self, Backend},
    report::Pair,
};

const TIMES: usize = 300;
const BYTES: usize = 512;

pub(crate) async fn sqlite() -> Pair {
    let commit = bare::one_commit(&mut Rows::new().await, BYTES).await;
    round(Backend::start().await, commit).await
}

/// Against the same floor with PostgreSQL's own commit.
pub(crate) async fn postgres() -> Pair {
    let server = Postgres::start_durable();
    let commit = bare::one_postgres_commit(&server, BYTES).await;
    round(Backend::on_postgres(&server).await, commit).await
}

async fn round(backend: Backend, commit: Duration) -> Pair {
    let publisher = loopback::connect(backend.address).await;
    let mut stream =
        loopback::subscribe(&loopback::connect(backend.address).await, &[loopback::topic(1)]).await;
    let mut query = QueryServiceClient::new(publisher.clone());
    let (mut ours, mut unary) = (Vec::new(), Vec::new());
    for serial in 0..TIMES {
        let start = Instant::now();
        let request = QueryNewestRequest { topics: Vec::new(), include_full_envelope: false };
        query.query_newest(request).await.expect("answered");
        unary.push(start.elapsed());
        let start = Instant::now();
        let (_, ()) = tokio::join!(
            loopback::put(&publisher, vec![loopback::welcome(1, serial as u64, BYTES)]),
            async {
                loopback::receive(&mut stream, 1).await;
                ours.push(start.elapsed());
            }
        );
    }
    backend.stop().await;
    Pair { floor: bare::median(unary) + commit, ours: bare::median(ours), count: 1, unit: "median of one" }
}
