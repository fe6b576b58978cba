//! One suite for every store: what the server needs of a database, whichever it is.

mod cancel;
mod contract;
mod fixture;
mod replica;

use fixture::Pair;

/// The same tests on SQLite, on PostgreSQL, and with writer and reader as two instances over one
/// PostgreSQL.
macro_rules! on_every_store {
    ($($test:ident),+ $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() { super::contract::$test(super::Pair::sqlite().await).await })+
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() { super::contract::$test(super::Pair::postgres().await).await })+
        }
        mod two_instances {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() { super::contract::$test(super::Pair::two_instances().await).await })+
        }
    };
}

on_every_store! {
    a_publish_is_stored_whole_and_read_back_in_order,
    ids_rise_over_all_topics,
    a_repeat_is_answered_with_what_was_stored,
    repeats_at_the_same_moment_are_stored_once,
    an_identity_update_against_an_old_history_stores_nothing,
    one_of_two_concurrent_identity_updates_wins,
    identifiers_follow_the_updates,
    pages_are_bounded_without_a_hole,
    the_newest_and_the_heads_are_of_the_asked_topics_alone,
    the_tail_shows_everything_once_and_in_order_per_topic,
    expiry_and_time_are_the_stores,
    a_closed_store_says_so,
}
