use std::time::Duration;

use highwater::{Message, Outcome, text_content};
use highwater_testkit::{Link, TestBackend, TestClient, assert_clean, eventually};

async fn texts(client: &TestClient) -> Vec<String> {
    let page = client.history().oldest_first().page().await.unwrap();
    page.messages.iter().filter_map(|one| one.text().ok().map(str::to_owned)).collect()
}

/// Shows: STR-111, STR-113.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_reply_was_lost_arrives_once() {
    let backend = TestBackend::start().await;
    let link = Link::to(backend.address()).await;
    let alice = TestClient::new(&link.url()).await;
    let bob = TestClient::new(&backend.url()).await;
    let group = alice.create_group([bob.inbox_id()]).await.unwrap();
    bob.sync().await.unwrap();

    link.lose_replies();
    let waited = group.clone().within(Duration::from_millis(300)).send_text("once").await.unwrap();
    assert!(!matches!(waited.outcome, Outcome::Confirmed { .. }), "{waited:?}");
    // It is at the backend, only its sender can't know.
    eventually("the message to reach bob", async || {
        bob.sync().await.unwrap();
        texts(&bob).await == ["once"]
    })
    .await;
    link.restore();
    alice.sync().await.unwrap();
    assert_eq!(alice.unsettled().await.unwrap(), 0);
    bob.sync().await.unwrap();
    assert_eq!((texts(&alice).await, texts(&bob).await), (vec!["once".into()], vec!["once".into()]));
    assert_clean(&alice).await;
    assert_clean(&bob).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_queued_goes_out_by_itself_once_the_link_is_back() {
    let backend = TestBackend::start().await;
    let link = Link::to(backend.address()).await;
    let alice = TestClient::new(&link.url()).await;
    let group = alice.create_group([]).await.unwrap();
    link.go_down();
    let first = group.queue_text("one").await.unwrap();
    let sent = group.send_text("two").await.unwrap();
    assert_eq!(sent.outcome, Outcome::Queued);
    assert_eq!(group.unpublished().await.unwrap().len(), 2);
    link.restore();
    eventually("the queue to be sent", async || alice.unsettled().await.unwrap() == 0).await;
    assert!(group.unpublished().await.unwrap().is_empty());
    let message = alice.message(first).await.unwrap().unwrap();
    assert!(message.sequence_id.is_some() && message.cursor.is_some());
    assert_eq!(texts(&alice).await, ["one", "two"]);
}

/// Shows: STR-066.
#[tokio::test(flavor = "multi_thread")]
async fn however_much_is_queued_all_of_it_can_be_listed() {
    let backend = TestBackend::start().await;
    let link = Link::to(backend.address()).await;
    let alice = TestClient::new(&link.url()).await;
    let group = alice.create_group([]).await.unwrap();
    link.go_down();
    let mut queued = Vec::new();
    for n in 0..130 {
        queued.push(group.queue_text(&n.to_string()).await.unwrap());
    }
    let ids = |messages: Vec<Message>| messages.iter().map(|message| message.id).collect::<Vec<_>>();
    assert_eq!(ids(group.unpublished().await.unwrap()), queued);
    let page = ids(group.unpublished_page(None).await.unwrap());
    assert_eq!(page, queued[..128]);
    let rest = ids(group.unpublished_page(page.last().copied()).await.unwrap());
    assert_eq!(rest, queued[128..]);
    assert!(group.unpublished_page(rest.last().copied()).await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_link_changes_nothing_but_the_time() {
    let backend = TestBackend::start().await;
    let link = Link::to(backend.address()).await;
    let alice = TestClient::new(&link.url()).await;
    let group = alice.create_group([]).await.unwrap();
    link.delay(Duration::from_millis(40));
    let sent = group.send_text("slowly").await.unwrap();
    assert!(matches!(sent.outcome, Outcome::Confirmed { .. }), "{sent:?}");
    assert!(link.connections() > 0);
}

/// Shows: STR-112.
#[tokio::test(flavor = "multi_thread")]
async fn two_clients_over_one_database_send_without_getting_into_each_others_way() {
    let backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let bob = TestClient::new(&backend.url()).await;
    let group = alice.create_group([bob.inbox_id()]).await.unwrap();
    let other = alice.open_another().await;
    let same = other.group(group.id()).await.unwrap();
    for n in 0..10 {
        let (one, two) = tokio::join!(async { group.queue_text(&format!("a{n}")).await }, async {
            same.queue_text(&format!("b{n}")).await
        });
        one.unwrap();
        two.unwrap();
    }
    eventually("both queues to be sent", async || alice.unsettled().await.unwrap() == 0).await;
    bob.sync().await.unwrap();
    let arrived = texts(&bob).await;
    assert_eq!(arrived.len(), 20, "{arrived:?}");
    for sender in ["a", "b"] {
        let own: Vec<_> = arrived.iter().filter(|text| text.starts_with(sender)).collect();
        assert_eq!(
            own,
            (0..10).map(|n| format!("{sender}{n}")).collect::<Vec<_>>().iter().collect::<Vec<_>>()
        );
    }
    other.close().await;
    assert_clean(&alice).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_key_and_content_are_one_message() {
    let backend = TestBackend::start().await;
    let alice = TestClient::new(&backend.url()).await;
    let group = alice.create_group([]).await.unwrap();
    let send = |text: &str| group.send(text_content(text), Some("key".into()));
    let (first, again) = (send("one").await.unwrap(), send("one").await.unwrap());
    assert_eq!(first.message_id, again.message_id);
    assert_ne!(first.message_id, send("other").await.unwrap().message_id);
    assert_eq!(texts(&alice).await, ["one", "other"]);
    assert!(group.send(vec![0xff], None).await.is_err());
}
