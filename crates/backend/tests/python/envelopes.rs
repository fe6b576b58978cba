//! Files with encoded envelopes that only this project's own code can make: MLS and signatures.

use std::path::Path;

use highwater_wire::{GroupId, proto::backend::ClientEnvelope};
use openmls::prelude::Lifetime;
use prost::Message as _;
use serde_json::json;

use crate::fixture::{commit_log, group_message, identity, key_package, welcome};
use crate::people::{MlsMember, Person};

/// Additions to the one inbox that racing publishes extend; with the registration, no more than an
/// inbox may have.
const ADDITIONS: u8 = 200;

const GROUP: [u8; 16] = [0x51; 16];

/// Writes `NAME.bin` for each envelope, and `facts.json` with what Python must know about them.
pub(crate) fn write(folder: &Path) {
    let put = |name: &str, envelope: &ClientEnvelope| {
        crate::write(&folder.join(format!("{name}.bin")), envelope.encode_to_vec());
    };
    let mut member = MlsMember::new(&GROUP);
    put("application", &group_message(member.message(b"hello")));
    put("commit", &group_message(member.commit()));
    put("proposal", &group_message(MlsMember::new(&GROUP).proposal()));
    put("welcome", &welcome(1, b"a Welcome"));
    put("key_package", &key_package(member.key_package(Lifetime::new(60 * 60))));
    put("expired_key_package", &key_package(member.key_package(Lifetime::init(1, 2))));
    put("commit_log", &commit_log(GroupId::from_bytes(GROUP)));

    // Registered and extended; only registered; never registered.
    let (person, racer, stranger) = (Person::new(1), Person::new(2), Person::new(3));
    put("registration", &identity(person.registration.clone()));
    put("addition", &identity(person.add(101)));
    put("other_addition", &identity(person.add(102)));
    put("racing_registration", &identity(racer.registration.clone()));
    for number in 0..ADDITIONS {
        put(&format!("racing_addition_{number}"), &identity(racer.add(number + 10)));
    }
    put("orphaned_addition", &identity(stranger.add(103)));
    let facts = json!({
        "group": hex::encode(GROUP),
        "installation": hex::encode(member.installation().as_bytes()),
        "inbox": person.inbox.to_string(),
        "address": person.wallet.address().to_string(),
        "stranger": stranger.wallet.address().to_string(),
        "racing_inbox": racer.inbox.to_string(),
        "racing_additions": ADDITIONS,
    });
    crate::write(&folder.join("facts.json"), facts.to_string());
}
