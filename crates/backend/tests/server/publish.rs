//! What is stored, what is refused, and how it says so.

use highwater_wire::{
    GroupId, Topic,
    proto::{
        associations::{self, SmartContractWalletSignature},
        backend::{
            ClientEnvelope, GetInboxIdsRequest, GroupMessage, PublishRequest, client_envelope::Payload,
            get_inbox_ids_request, publish_error::Reason,
        },
    },
};
use openmls::prelude::Lifetime;
use prost::Message as _;
use sha2::{Digest as _, Sha256};
use tonic::Code;

use crate::fixture::*;
use crate::people::{MlsMember, Person};

const GROUP: [u8; 16] = [4; 16];

fn sha256(meta: &highwater_wire::proto::backend::EnvelopeMeta) -> Vec<u8> {
    use highwater_wire::proto::backend::message_hash::Hash;
    match meta.message_hash.as_ref().and_then(|hash| hash.hash.as_ref()) {
        Some(Hash::Sha256(bytes)) => bytes.clone(),
        None => panic!("a hash"),
    }
}

async fn refused(client: &Client, envelopes: Vec<ClientEnvelope>) -> (Option<u32>, Reason) {
    let status = client.put(envelopes).await.expect_err("refused");
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    let error = publish_error(&status);
    assert!(!error.message.is_empty());
    (error.index, error.reason())
}

#[tokio::test]
async fn every_kind_is_stored_with_topic_hash_and_expiry_and_comes_back_byte_for_byte() {
    let (_home, server) = server().await;
    let client = server.client().await;
    let mut member = MlsMember::new(&GROUP);
    let person = Person::new(1);
    let group = GroupId::from_bytes(GROUP);
    let application = group_message(member.message(b"hello"));
    let proposal = group_message(member.proposal());
    let package = key_package(member.key_package(Lifetime::default()));
    let envelopes = vec![
        application.clone(),
        proposal,
        welcome(3, b"sealed"),
        package,
        identity(person.registration.clone()),
        commit_log(group),
    ];
    let metas = client.put(envelopes.clone()).await.expect("stored");

    let topics: Vec<Topic> = metas
        .iter()
        .map(|meta| Topic::try_from(meta.topic.as_ref().expect("a topic")).expect("a topic"))
        .collect();
    assert_eq!(
        topics,
        [
            Topic::group(group),
            Topic::group(group),
            welcome_topic(3),
            Topic::key_package(member.installation()),
            Topic::identity(person.inbox),
            Topic::commit_log(group),
        ]
    );
    let ids: Vec<u64> = metas.iter().map(id).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    for (meta, envelope) in metas.iter().zip(&envelopes) {
        assert_eq!(sha256(meta), Sha256::digest(envelope.encode_to_vec()).to_vec());
        assert_eq!(meta.server_ns, metas[0].server_ns, "one time per publish");
    }
    let retention = 90 * 24 * 60 * 60 * 1_000_000_000_u64;
    let expiries: Vec<u64> = metas.iter().map(|m| m.expiry_ns.saturating_sub(m.server_ns)).collect();
    assert_eq!(expiries, [retention, 0, retention, retention, 0, 0]);
    let handshakes: Vec<bool> = metas.iter().map(|m| m.is_commit_or_proposal).collect();
    assert_eq!(handshakes, [false, true, false, false, false, false]);

    let page = client.page(&[(Topic::group(group), 0)], 0).await.expect("a page");
    assert_eq!(page.envelopes[0].envelope.as_ref(), Some(&application));
    assert_eq!(page.envelopes[0].meta.as_ref(), Some(&metas[0]));
    server.stop().await;
}

#[tokio::test]
async fn a_commit_is_marked_and_trailing_bytes_are_kept() {
    let (_home, server) = server().await;
    let client = server.client().await;
    let mut data = MlsMember::new(&GROUP).commit();
    data.extend_from_slice(b"trailing");
    let metas = client.put(vec![group_message(data.clone())]).await.expect("stored");
    assert!(metas[0].is_commit_or_proposal);
    let topic = Topic::group(GroupId::from_bytes(GROUP));
    let page = client.page(&[(topic, 0)], 0).await.expect("a page");
    match page.envelopes[0].envelope.as_ref().and_then(|e| e.payload.as_ref()) {
        Some(Payload::GroupMessage(GroupMessage { data: found, .. })) => assert_eq!(*found, data),
        other => panic!("a group message, not {other:?}"),
    }
    server.stop().await;
}

#[tokio::test]
async fn a_duplicate_is_answered_with_what_was_stored_whenever_it_comes() {
    let (_home, server) = server().await;
    let client = server.client().await;
    // Of an earlier request.
    let first = client.put(vec![welcome(1, b"a")]).await.expect("stored");
    assert_eq!(client.put(vec![welcome(1, b"a")]).await.expect("answered"), first);
    // Of an earlier index, beside something new.
    let metas = client.put(vec![welcome(1, b"b"), welcome(1, b"a"), welcome(1, b"b")]).await.expect("stored");
    assert_eq!(metas[0], metas[2]);
    assert_eq!(metas[1], first[0]);
    assert!(id(&metas[0]) > id(&first[0]));
    // Of concurrent requests.
    let racing = (0..16).map(|_| {
        let client = client.clone();
        tokio::spawn(async move { client.put_one(welcome(1, b"c")).await })
    });
    let ids: Vec<u64> =
        futures::future::join_all(racing).await.into_iter().map(|joined| joined.expect("no panic")).collect();
    assert!(ids.iter().all(|found| *found == ids[0]), "{ids:?}");
    assert_eq!(client.all(welcome_topic(1)).await.len(), 3);
    server.stop().await;
}

#[tokio::test]
async fn a_duplicate_skips_every_check_but_parsing() {
    let home = Home::new();
    let person = Person::new(1);
    let update = identity(person.registration.clone());
    let large = welcome(1, &[5; 2_000]);
    let server = Running::start(&home, |_| {}).await;
    let client = server.client().await;
    let stored = client.put(vec![update.clone(), large.clone()]).await.expect("stored");
    server.stop().await;
    // Neither would be taken as new by this server.
    let server = Running::start(&home, |config| {
        config.limits.max_envelope_bytes = 1_000;
        config.limits.max_identity_entries = 1;
    })
    .await;
    let client = server.client().await;
    assert_eq!(client.put(vec![update, large]).await.expect("answered"), stored);
    server.stop().await;
}

#[tokio::test]
async fn a_refusal_names_the_lowest_failing_index_and_stores_nothing() {
    let (_home, server) = server().await;
    let client = server.client().await;
    let good = welcome(1, b"good");
    let nothing = ClientEnvelope { payload: None };
    assert_eq!(
        refused(&client, vec![good.clone(), nothing.clone()]).await,
        (Some(1), Reason::MalformedPayload)
    );
    // A check that fails before a later envelope that doesn't even parse.
    let mut expired = MlsMember::new(&GROUP).key_package(Lifetime::default());
    let last = expired.len() - 1;
    expired[last] ^= 1;
    assert_eq!(
        refused(&client, vec![good.clone(), key_package(expired), nothing]).await,
        (Some(1), Reason::InvalidKeyPackage)
    );
    assert!(client.all(welcome_topic(1)).await.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn malformed_payloads_of_every_kind_are_refused() {
    let (_home, server) = server().await;
    let client = server.client().await;
    let mut member = MlsMember::new(&[1; 17]);
    let mut no_version = welcome(1, b"");
    no_version.payload = Some(Payload::WelcomeMessage(Default::default()));
    let mut trailing = member.key_package(Lifetime::default());
    trailing.push(0);
    let mut update = Person::new(1).registration;
    update.inbox_id.make_ascii_uppercase();
    for malformed in [
        group_message(b"no MLSMessage".to_vec()),
        group_message(member.message(b"a group id of 17 bytes")),
        no_version,
        key_package(b"no key package".to_vec()),
        key_package(trailing),
        identity(update),
        envelope(Payload::CommitLogEntry(Default::default())),
    ] {
        assert_eq!(refused(&client, vec![malformed]).await, (Some(0), Reason::MalformedPayload));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_key_package_must_be_valid_now_and_carry_a_credential_that_decodes() {
    let (_home, server) = server().await;
    let client = server.client().await;
    let member = MlsMember::new(&GROUP);
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    let stranger = MlsMember::with_identity(&GROUP, b"\xff\xff".to_vec());
    for invalid in [
        member.key_package(Lifetime::init(now - 100, now - 1)),
        member.key_package(Lifetime::init(now + 1_000, now + 2_000)),
        member.key_package(Lifetime::init(now - 1, now + 60 * 60 * 24 * 365)),
        stranger.key_package(Lifetime::default()),
    ] {
        let answer = refused(&client, vec![key_package(invalid)]).await;
        assert_eq!(answer, (Some(0), Reason::InvalidKeyPackage));
    }
    client.put_one(key_package(member.key_package(Lifetime::default()))).await;
    server.stop().await;
}

#[tokio::test]
async fn identity_updates_must_apply_to_the_whole_history() {
    let (_home, server) = server_with(|config| config.limits.max_identity_entries = 3).await;
    let client = server.client().await;
    let person = Person::new(1);
    let refusal = |answer| (Some(0), answer);
    // Nothing to add to yet.
    assert_eq!(refused(&client, vec![identity(person.add(2))]).await, refusal(Reason::InvalidIdentityUpdate));
    client.put_one(identity(person.registration.clone())).await;
    let mut forged = person.add(2);
    let action = forged.actions[0].kind.as_mut().expect("an action");
    let associations::identity_action::Kind::Add(add) = action else { panic!("an addition") };
    // The right key over another text.
    let foreign = highwater_identity::sign::sign_as_installation(&[2; 32], "another text");
    add.new_member_signature = Some(foreign);
    assert_eq!(refused(&client, vec![identity(forged)]).await, refusal(Reason::InvalidSignature));
    // Two updates of an inbox in one request.
    let both = vec![identity(person.add(2)), identity(person.add(3))];
    assert_eq!(refused(&client, both).await, (Some(1), Reason::InvalidIdentityUpdate));
    client.put_one(identity(person.add(2))).await;
    client.put_one(identity(person.add(3))).await;
    // The history is as long as it may get.
    assert_eq!(refused(&client, vec![identity(person.add(4))]).await, refusal(Reason::TooLarge));
    assert_eq!(client.all(Topic::identity(person.inbox)).await.len(), 3);
    server.stop().await;
}

#[tokio::test]
async fn of_updates_that_exclude_each_other_one_is_stored_however_they_race() {
    let (_home, server) = server().await;
    let client = server.client().await;
    let person = Person::new(1);
    client.put_one(identity(person.registration.clone())).await;
    // Each alone is valid; after one of them the installation is a member and the others are not.
    let racing = (0..16).map(|second| {
        let client = client.clone();
        let update = identity(person.add_at(2, second * 1_000_000_000));
        tokio::spawn(async move { client.put(vec![update]).await.map_err(|s| s.code()) })
    });
    let mut stored = 0;
    for joined in futures::future::join_all(racing).await {
        match joined.expect("no panic") {
            Ok(_) => stored += 1,
            Err(code) => assert!(matches!(code, Code::Aborted | Code::InvalidArgument), "{code}"),
        }
    }
    assert_eq!(stored, 1);
    assert_eq!(client.all(Topic::identity(person.inbox)).await.len(), 2);
    // The log still folds.
    client.put_one(identity(person.add(3))).await;
    server.stop().await;
}

#[tokio::test]
async fn a_contract_wallet_that_no_verifier_can_judge_is_unavailable_not_invalid() {
    let (_home, server) = server().await;
    let client = server.client().await;
    let person = Person::new(1);
    client.put_one(identity(person.registration.clone())).await;
    let mut update = person.add(2);
    let action = update.actions[0].kind.as_mut().expect("an action");
    let associations::identity_action::Kind::Add(add) = action else { panic!("an addition") };
    let wallet = SmartContractWalletSignature {
        account_id: "eip155:1:0x0000000000000000000000000000000000000001".to_owned(),
        block_number: 1,
        signature: vec![1],
    };
    add.existing_member_signature = Some(associations::Signature {
        signature: Some(associations::signature::Signature::Erc6492(wallet)),
    });
    let status = client.put(vec![identity(update)]).await.expect_err("undecided");
    assert_eq!(status.code(), Code::Unavailable);
    server.stop().await;
}

#[tokio::test]
async fn identifiers_lead_to_the_inbox_that_holds_them_now() {
    let (_home, server) = server().await;
    let mut client = server.client().await;
    let person = Person::new(1);
    client.put_one(identity(person.registration.clone())).await;
    let request = |identifier: &str, identifier_kind| get_inbox_ids_request::Request {
        identifier: identifier.to_owned(),
        identifier_kind,
    };
    let address = person.wallet.address().to_string();
    let requests = vec![request(&address, 1), request("0xnobody", 1), request(&address, 0)];
    let response = client.identity.get_inbox_ids(GetInboxIdsRequest { requests }).await;
    let found: Vec<_> =
        response.expect("answered").into_inner().responses.into_iter().map(|r| r.inbox_id).collect();
    let inbox = Some(person.inbox.to_string());
    assert_eq!(found, [inbox.clone(), None, inbox]);
    server.stop().await;
}

#[tokio::test]
async fn what_is_too_large_is_refused_by_the_right_code() {
    let (_home, server) = server_with(|config| {
        config.limits.max_envelope_bytes = 10_000;
        config.limits.max_request_bytes = 50_000;
        config.limits.max_publish_topics = 3;
    })
    .await;
    let client = server.client().await;
    assert_eq!(
        refused(&client, vec![welcome(1, b"small"), welcome(1, &[0; 10_000])]).await,
        (Some(1), Reason::TooLarge)
    );
    let topics = (1..=4).map(|number| welcome(number, b"")).collect();
    assert_eq!(refused(&client, topics).await, (None, Reason::TooLarge));
    let status = client
        .put((0..6).map(|i| welcome(1, &[i; 9_000])).collect())
        .await
        .expect_err("over the byte ceiling");
    assert_eq!(status.code(), Code::OutOfRange);
    assert!(client.all(welcome_topic(1)).await.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn a_compressed_request_is_unimplemented() {
    let (_home, server) = server().await;
    let mut client = server.client().await;
    let mut request = tonic::Request::new(PublishRequest { envelopes: vec![welcome(1, b"")] });
    request.metadata_mut().insert("grpc-encoding", "gzip".parse().expect("ascii"));
    let status = client.publish.publish(request).await.expect_err("refused");
    assert_eq!(status.code(), Code::Unimplemented);
    server.stop().await;
}
