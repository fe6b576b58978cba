//! What every store promises.

use std::{collections::BTreeMap, sync::Arc};

use highwater_backend::{
    EnvelopeStore, StoreError,
    store::{Committed, Identifier, IdentityChange, ReadBounds, Source, StoredMeta, TopicRead},
};
use highwater_wire::{Cursor, SequenceId, Topic, proto::associations::IdentifierKind};

use crate::fixture::{Pair, envelope, inbox, put, soon, topic, update};

const ALL: ReadBounds = ReadBounds { rows_per_topic: 10_000, rows: 10_000, bytes: 64 * 1024 * 1024 };

async fn read(
    store: &Arc<dyn EnvelopeStore>,
    reads: &[(Topic, Cursor)],
    bounds: ReadBounds,
) -> Vec<(Vec<SequenceId>, bool)> {
    let reads: Vec<TopicRead> =
        reads.iter().map(|(topic, after)| TopicRead { topic: *topic, after: *after }).collect();
    let page = store.read_after(Source::Primary, &reads, bounds).await.expect("a page");
    page.into_iter()
        .map(|topic| (topic.envelopes.iter().map(|e| e.meta.sequence_id).collect(), topic.has_more))
        .collect()
}

fn ids(metas: &[StoredMeta]) -> Vec<SequenceId> {
    metas.iter().map(|meta| meta.sequence_id).collect()
}

pub(crate) async fn a_publish_is_stored_whole_and_read_back_in_order(pair: Pair) {
    let texts = ["one", "two", "", "four"];
    let envelopes: Vec<_> = texts.iter().map(|text| envelope(topic(1), text)).collect();
    let metas = put(&pair.writer, &envelopes).await;
    let reads = [TopicRead { topic: topic(1), after: Cursor::ZERO }];
    let page = pair.reader.read_after(Source::Primary, &reads, ALL).await.expect("a page");
    let payloads: Vec<_> = page[0].envelopes.iter().map(|envelope| envelope.payload.clone()).collect();
    assert_eq!(payloads, texts);
    assert_eq!(page[0].envelopes.iter().map(|e| e.meta.clone()).collect::<Vec<_>>(), metas);
    assert!(!page[0].has_more);
    let mut again = pair.reader.read_ids(&ids(&metas)).await.expect("the envelopes");
    again.sort_by_key(|envelope| envelope.meta.sequence_id);
    assert_eq!(again, page[0].envelopes);
}

pub(crate) async fn ids_rise_over_all_topics(pair: Pair) {
    let mut last = 0;
    for round in 0..20 {
        for number in [3, 1, 2] {
            let metas = put(&pair.writer, &[envelope(topic(number), &format!("{round}"))]).await;
            assert!(metas[0].sequence_id.get() > last);
            last = metas[0].sequence_id.get();
        }
    }
}

pub(crate) async fn a_repeat_is_answered_with_what_was_stored(pair: Pair) {
    let first = put(&pair.writer, &[envelope(topic(1), "a"), envelope(topic(2), "a")]).await;
    let again =
        [envelope(topic(2), "a"), envelope(topic(1), "b"), envelope(topic(1), "a"), envelope(topic(1), "b")];
    let second = put(&pair.writer, &again).await;
    assert_eq!((&second[0], &second[2]), (&first[1], &first[0]));
    assert_eq!(second[1], second[3]);
    let all = read(&pair.reader, &[(topic(1), Cursor::ZERO)], ALL).await;
    assert_eq!(all[0].0, [first[0].sequence_id, second[1].sequence_id]);
}

pub(crate) async fn repeats_at_the_same_moment_are_stored_once(pair: Pair) {
    for round in 0..10 {
        let envelopes =
            Arc::new([envelope(topic(1), &format!("{round} a")), envelope(topic(2), &format!("{round} b"))]);
        let tasks: Vec<_> = (0..8)
            .map(|number| {
                let store = Arc::clone(if number % 2 == 0 { &pair.writer } else { &pair.reader });
                let mut envelopes = envelopes.to_vec();
                // Locks are taken in one order, whatever order is asked for.
                if number % 3 == 0 {
                    envelopes.reverse();
                }
                tokio::spawn(async move {
                    let mut metas = put(&store, &envelopes).await;
                    metas.sort_by_key(|meta| meta.topic);
                    metas
                })
            })
            .collect();
        let mut answers = Vec::new();
        for task in tasks {
            answers.push(soon("the publish", task).await.expect("no panic"));
        }
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    }
    assert_eq!(read(&pair.reader, &[(topic(1), Cursor::ZERO)], ALL).await[0].0.len(), 10);
}

fn gains(head: Cursor, text: &str) -> IdentityChange {
    let identifier = Identifier { kind: IdentifierKind::Ethereum, text: text.to_owned() };
    IdentityChange { head, gained: vec![identifier], lost: Vec::new() }
}

pub(crate) async fn an_identity_update_against_an_old_history_stores_nothing(pair: Pair) {
    let first = put(&pair.writer, &[update(inbox(1), "first", gains(Cursor::ZERO, "0xa"))]).await;
    let stale = [envelope(topic(1), "beside"), update(inbox(1), "stale", gains(Cursor::ZERO, "0xb"))];
    assert_eq!(pair.writer.commit(&stale).await.expect("an answer"), Committed::HistoryMoved);
    assert_eq!(read(&pair.reader, &[(topic(1), Cursor::ZERO)], ALL).await[0].0, []);
    assert_eq!(pair.reader.heads(&[topic(1)]).await.expect("heads").len(), 0);
    // A repeat of what was stored is no update against an old history.
    let again = put(&pair.writer, &[update(inbox(1), "first", gains(Cursor::ZERO, "0xa"))]).await;
    assert_eq!(again, first);
    let next = update(inbox(1), "next", gains(first[0].sequence_id.into(), "0xc"));
    put(&pair.writer, &[next]).await;
}

pub(crate) async fn one_of_two_concurrent_identity_updates_wins(pair: Pair) {
    let mut head = Cursor::ZERO;
    for round in 0..10 {
        let stores = [&pair.writer, &pair.reader, &pair.writer];
        let tasks: Vec<_> = (0..3)
            .zip(stores)
            .map(|(number, store)| {
                let store = Arc::clone(store);
                let update = update(inbox(1), &format!("{round} {number}"), gains(head, "0xa"));
                tokio::spawn(async move { store.commit(&[update]).await.expect("an answer") })
            })
            .collect();
        let mut won = Vec::new();
        for task in tasks {
            if let Committed::Stored(metas) = task.await.expect("no panic") {
                won.push(metas[0].sequence_id);
            }
        }
        assert_eq!(won.len(), 1, "round {round}");
        head = won[0].into();
    }
}

pub(crate) async fn identifiers_follow_the_updates(pair: Pair) {
    let identifier = |text: &str| Identifier { kind: IdentifierKind::Ethereum, text: text.to_owned() };
    let first = put(&pair.writer, &[update(inbox(1), "1", gains(Cursor::ZERO, "0xa"))]).await;
    put(&pair.writer, &[update(inbox(2), "2", gains(Cursor::ZERO, "0xa"))]).await;
    let asked = [identifier("0xa"), identifier("0xb"), identifier("\0")];
    let found = pair.reader.inbox_ids(&asked).await.expect("inboxes");
    // The inbox that gained it last.
    assert_eq!(found.get(&asked[0]), Some(&inbox(2)));
    assert_eq!(found.len(), 1);
    let change = IdentityChange {
        head: first[0].sequence_id.into(),
        gained: vec![identifier("0xb")],
        lost: vec![identifier("0xa")],
    };
    put(&pair.writer, &[update(inbox(1), "3", change)]).await;
    let found = pair.reader.inbox_ids(&asked).await.expect("inboxes");
    assert_eq!(found.get(&asked[1]), Some(&inbox(1)));
    assert_eq!(found.get(&asked[0]), Some(&inbox(2)));
}

pub(crate) async fn pages_are_bounded_without_a_hole(pair: Pair) {
    let mut stored: BTreeMap<Topic, Vec<SequenceId>> = BTreeMap::new();
    for round in 0..7 {
        let envelopes = [1, 2, 3].map(|number| envelope(topic(number), &format!("{round:1000}")));
        for meta in put(&pair.writer, &envelopes).await {
            stored.entry(meta.topic).or_default().push(meta.sequence_id);
        }
    }
    for rows_per_topic in 1..9 {
        for rows in 1..23 {
            for bytes in [1, 1_500, 4_000, 1_000_000] {
                let bounds = ReadBounds { rows_per_topic, rows, bytes };
                let asked = [3, 1, 9, 2].map(|number| (topic(number), Cursor::ZERO));
                let page = read(&pair.reader, &asked, bounds).await;
                let found: usize = page.iter().map(|topic| topic.0.len()).sum();
                assert!((1..=rows).contains(&found), "{bounds:?}: {page:?}");
                for ((topic, _), (ids, has_more)) in asked.iter().zip(&page) {
                    let all = stored.get(topic).map_or(&[][..], Vec::as_slice);
                    assert!(all.starts_with(ids) && ids.len() <= rows_per_topic, "{bounds:?}: {page:?}");
                    assert_eq!(*has_more, ids.len() < all.len(), "{bounds:?}: {page:?}");
                }
            }
        }
    }
    let after = stored[&topic(1)][4].into();
    let rest = read(&pair.reader, &[(topic(1), after)], ALL).await;
    assert_eq!(rest[0], (stored[&topic(1)][5..].to_vec(), false));
}

pub(crate) async fn the_newest_and_the_heads_are_of_the_asked_topics_alone(pair: Pair) {
    put(&pair.writer, &[envelope(topic(1), "old"), envelope(topic(3), "other")]).await;
    let last = put(&pair.writer, &[envelope(topic(1), "new")]).await;
    let asked = [topic(1), topic(2)];
    let heads = pair.reader.heads(&asked).await.expect("heads");
    assert_eq!(heads, [(topic(1), last[0].sequence_id)].into());
    assert_eq!(pair.reader.newest(&asked).await.expect("newest"), last);
}

pub(crate) async fn the_tail_shows_everything_once_and_in_order_per_topic(pair: Pair) {
    put(&pair.writer, &[envelope(topic(1), "before")]).await;
    let mut tail = pair.reader.tail().await.expect("a tail");
    let publishers: Vec<_> = (0..8_u8)
        .map(|publisher| {
            let store = Arc::clone(if publisher % 2 == 0 { &pair.writer } else { &pair.reader });
            tokio::spawn(async move {
                for round in 0..25 {
                    let topics = [publisher % 3, 3 + publisher % 2];
                    let envelopes =
                        topics.map(|number| envelope(topic(number), &format!("{publisher} {round}")));
                    put(&store, &envelopes).await;
                }
            })
        })
        .collect();
    let mut shown: BTreeMap<Topic, Vec<SequenceId>> = BTreeMap::new();
    let mut hints = pair.reader.hints();
    soon("all arrivals", async {
        while shown.values().map(Vec::len).sum::<usize>() < 8 * 25 * 2 {
            let arrivals = tail.next().await.expect("arrivals");
            if arrivals.is_empty() {
                let poll = std::time::Duration::from_millis(20);
                let _ = tokio::time::timeout(poll, hints.changed()).await;
            }
            for arrival in arrivals {
                shown.entry(arrival.topic).or_default().push(arrival.sequence_id);
            }
        }
    })
    .await;
    for publisher in publishers {
        publisher.await.expect("published");
    }
    assert_eq!(tail.next().await.expect("arrivals"), []);
    for (topic, shown) in shown {
        let stored = read(&pair.reader, &[(topic, Cursor::ZERO)], ALL).await.remove(0).0;
        assert!(stored.ends_with(&shown), "{stored:?} {shown:?}");
    }
}

pub(crate) async fn expiry_and_time_are_the_stores(pair: Pair) {
    let now = || {
        let since = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
        i64::try_from(since.as_nanos()).expect("before 2262")
    };
    let before = now();
    let change = IdentityChange { head: Cursor::ZERO, gained: Vec::new(), lost: Vec::new() };
    let metas = put(&pair.writer, &[envelope(topic(1), "a"), update(inbox(1), "b", change)]).await;
    let second = 1_000_000_000;
    assert!((before - second..=now() + second).contains(&metas[0].server_ns));
    assert_eq!(metas[0].expiry_ns, metas[0].server_ns + 90 * second);
    // Once per publish; never for an identity update.
    assert_eq!((metas[1].server_ns, metas[1].expiry_ns), (metas[0].server_ns, 0));
}

pub(crate) async fn a_closed_store_says_so(pair: Pair) {
    soon("closing", async { tokio::join!(pair.writer.close(), pair.reader.close()) }).await;
    let written = pair.writer.commit(&[envelope(topic(1), "a")]).await;
    assert!(matches!(written, Err(StoreError::Unavailable(_))), "{written:?}");
    let read = pair.reader.heads(&[topic(1)]).await;
    assert!(matches!(read, Err(StoreError::Unavailable(_))), "{read:?}");
}
