//! The stage: a backend, three clients with a link each, and the course that is played on it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use highwater::{ConversationState, GroupId, Outcome, Status};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::Instant;

use super::backend::{Backend, folder};
use super::ledger::{Finding, Sent};
use super::participant::{Participant, SharedLedger, with};
use super::plan::{ALICE, BOB, CAROL, NAMES, Place, Step, Who, course};
use super::progress::{Counts, Progress};
use super::report::{self, Table};
use crate::Ended;
use crate::args::DemoArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::proxy::Proxy;

/// How long nothing may happen before what is missing is given up.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(25);
/// How long a cut link stays down.
const DOWN: Duration = Duration::from_millis(300);

pub(super) struct Stage {
    participants: Vec<Participant>,
    places: BTreeMap<Place, GroupId>,
    members: BTreeMap<Place, BTreeSet<Who>>,
    ledger: SharedLedger,
    counts: Counts,
    progress: Progress,
    backend: Option<Backend>,
    /// Removed with everything in it when the stage goes.
    _temporary: Option<TempDir>,
}

impl Stage {
    /// Starts the backend, registers the clients and creates the conversations.
    pub(super) async fn set(args: &DemoArgs, output: &Output) -> Result<Self, Failure> {
        let (dir, temporary) = folder(args.keep.as_deref())?;
        let backend = Backend::start(&dir.join("backend.db")).await?;
        let address = backend.address;
        let mut stage = Self {
            participants: Vec::new(),
            places: BTreeMap::new(),
            members: BTreeMap::new(),
            ledger: SharedLedger::default(),
            counts: Counts::default(),
            progress: Progress::new(output),
            backend: Some(backend),
            _temporary: temporary,
        };
        stage.progress.event(&json!({"event": "backend", "address": address.to_string()}), || {
            format!("backend on {address}, homes in {}", dir.display())
        })?;
        for (who, name) in NAMES.into_iter().enumerate() {
            let link = Proxy::start(address).await?;
            let joined = Participant::join(who, dir.join(name), link, stage.ledger.clone()).await?;
            let inbox = joined.client.inbox_id();
            stage
                .progress
                .event(&json!({"event": "client", "client": name, "inbox_id": inbox.to_string()}), || {
                    format!("{name} is inbox {inbox}")
                })?;
            stage.participants.push(joined);
        }
        stage.create(Place::Harbour, ALICE, [BOB, CAROL].into()).await?;
        stage.create(Place::Lookout, BOB, [ALICE].into()).await?;
        stage.create(Place::Dm, ALICE, [CAROL].into()).await?;
        Ok(stage)
    }

    async fn create(&mut self, place: Place, by: Who, others: BTreeSet<Who>) -> Result<(), Failure> {
        let creator = &self.participants[by].client;
        let inboxes: Vec<_> = others.iter().map(|who| self.participants[*who].client.inbox_id()).collect();
        let new = match place {
            Place::Dm => creator.new_dm(inboxes[0]),
            _ => creator.new_group().name(place.name()).members(inboxes),
        };
        let created = new.create().await?;
        require_confirmed(place.name(), &created.outcome)?;
        let group = created.group.id();
        self.places.insert(place, group);
        for who in &others {
            self.until_in(*who, group).await?;
        }
        let mut members = others;
        members.insert(by);
        self.members.insert(place, members);
        self.progress
            .event(&json!({"event": "group", "name": place.name(), "group_id": group.to_string()}), || {
                format!("{} is group {group}", place.name())
            })?;
        Ok(())
    }

    /// Plays the course, and waits until everybody got what they are owed.
    pub(super) async fn play(&mut self, messages: u32) -> Result<(), Failure> {
        let steps = course(messages);
        for (index, step) in steps.iter().enumerate() {
            if let Some(stopped) = self.participants.iter_mut().find(|one| one.has_stopped()) {
                stopped.stop_reading().await?;
            }
            match *step {
                Step::Say { who, place } => {
                    // Whoever is killed next must not be handed this by the reader it has now.
                    if let Some(Step::Kill(victim)) = steps.get(index + 1) {
                        self.participants[*victim].stop_reading().await?;
                    }
                    self.say(who, place).await?;
                }
                Step::Cut => self.cut()?,
                Step::Reopen(who) => self.reopen(who).await?,
                Step::Kill(who) => self.kill(who).await?,
                Step::Add => self.add_carol().await?,
                Step::Remove => self.remove_carol().await?,
            }
            self.draw(messages)?;
        }
        self.until_complete(messages).await
    }

    async fn say(&mut self, who: Who, place: Place) -> Result<(), Failure> {
        let group = self.places[&place];
        let number = with(&self.ledger, |ledger| ledger.sent.len() + 1);
        let text = format!("{number} from {} in the {}", NAMES[who], place.name());
        let speaker = self.participants[who].client.group(group).await?;
        let id = speaker.queue_text(&text).await?;
        let members = self.members[&place].clone();
        with(&self.ledger, |ledger| ledger.sent.push(Sent { id, group, by: who, members }));
        Ok(())
    }

    fn cut(&mut self) -> Result<(), Failure> {
        for participant in &self.participants {
            participant.link.cut(DOWN);
        }
        self.counts.cuts += 1;
        self.progress.event(&json!({"event": "cut"}), String::new)?;
        Ok(())
    }

    async fn reopen(&mut self, who: Who) -> Result<(), Failure> {
        self.participants[who].reopen().await?;
        self.counts.reopens += 1;
        self.progress.event(&json!({"event": "reopened", "client": NAMES[who]}), String::new)?;
        Ok(())
    }

    async fn kill(&mut self, who: Who) -> Result<(), Failure> {
        self.participants[who].read_elsewhere_and_kill().await?;
        self.counts.kills += 1;
        self.progress.event(&json!({"event": "killed", "client": NAMES[who]}), String::new)?;
        Ok(())
    }

    async fn add_carol(&mut self) -> Result<(), Failure> {
        self.until_settled().await?;
        let (group, carol) = (self.places[&Place::Lookout], self.participants[CAROL].client.inbox_id());
        let bob = self.participants[BOB].client.group(group).await?;
        let outcome = bob.add_members([carol]).await?;
        self.until_confirmed(BOB, "adding carol", outcome).await?;
        self.until_in(CAROL, group).await?;
        self.members.entry(Place::Lookout).or_default().insert(CAROL);
        self.until_applied(Place::Lookout).await?;
        self.progress.event(&json!({"event": "added", "client": NAMES[CAROL]}), String::new)?;
        Ok(())
    }

    async fn remove_carol(&mut self) -> Result<(), Failure> {
        self.until_settled().await?;
        let (group, carol) = (self.places[&Place::Lookout], self.participants[CAROL].client.inbox_id());
        let bob = self.participants[BOB].client.group(group).await?;
        let outcome = bob.remove_members([carol]).await?;
        self.until_confirmed(BOB, "removing carol", outcome).await?;
        self.members.entry(Place::Lookout).or_default().remove(&CAROL);
        self.until_applied(Place::Lookout).await?;
        self.progress.event(&json!({"event": "removed", "client": NAMES[CAROL]}), String::new)?;
        Ok(())
    }

    /// A change that could not go out at once, because a link was just cut, goes out by itself.
    async fn until_confirmed(&self, who: Who, what: &str, outcome: Outcome) -> Result<(), Failure> {
        if let Outcome::Queued | Outcome::PublishedUnconfirmed { .. } = outcome {
            return self
                .until(what, async || Ok(self.participants[who].client.unsettled().await? == 0))
                .await;
        }
        require_confirmed(what, &outcome)
    }

    /// Nobody has anything on its way.
    async fn until_settled(&self) -> Result<(), Failure> {
        self.until("what was sent to be confirmed", async || {
            for participant in &self.participants {
                if participant.client.unsettled().await? > 0 {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await
    }

    async fn until_in(&self, who: Who, group: GroupId) -> Result<(), Failure> {
        self.until("an invitation to be followed", async || {
            let found = self.participants[who].client.groups().await?;
            Ok(found.iter().any(|one| one.id() == group && one.state() == ConversationState::Active))
        })
        .await
    }

    /// Every member has applied the last change. Whoever hasn't would still write for the members before it.
    async fn until_applied(&self, place: Place) -> Result<(), Failure> {
        let group = self.places[&place];
        self.until("a change to reach every member", async || {
            let mut epochs = BTreeSet::new();
            for who in &self.members[&place] {
                let status = self.participants[*who].client.status().await?;
                let found = status.groups.iter().find(|one| one.group_id == group);
                epochs.insert(found.and_then(|one| one.epoch));
            }
            Ok(epochs.len() == 1)
        })
        .await
    }

    async fn until(
        &self,
        what: &str,
        mut reached: impl AsyncFnMut() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + PATIENCE;
        while !reached().await? {
            if Instant::now() >= deadline {
                return Err(Failure::new(format!("gave up waiting for {what}")));
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Waits as long as something still arrives. What is missing then is for the sums to say.
    async fn until_complete(&mut self, messages: u32) -> Result<(), Failure> {
        self.until_settled().await?;
        let mut handed = 0;
        let mut since = Instant::now();
        loop {
            let (complete, now) = with(&self.ledger, |ledger| (ledger.is_complete(), ledger.handed()));
            if now > handed {
                (handed, since) = (now, Instant::now());
            }
            if complete || since.elapsed() >= PATIENCE {
                return Ok(());
            }
            self.draw(messages)?;
            tokio::time::sleep(LOOK).await;
        }
    }

    fn draw(&mut self, messages: u32) -> Result<(), Failure> {
        let (said, handed) = with(&self.ledger, |ledger| (ledger.sent.len(), ledger.handed()));
        Ok(self.progress.draw(said, messages, handed, &self.counts)?)
    }

    /// Says how far everybody is, audits every database, and sums up.
    pub(super) async fn judge(&mut self) -> Result<Ended, Failure> {
        let mut lines = vec![report::header()];
        let mut violations = 0;
        let inboxes: BTreeMap<_, _> = self
            .participants
            .iter()
            .map(|participant| (participant.client.inbox_id(), participant.name()))
            .collect();
        for participant in &mut self.participants {
            participant.stop_reading().await?;
            participant.client.sync_within(PATIENCE).await?;
            let status: Status = participant.client.status().await?;
            let table = Table {
                client: participant.name(),
                status: &status,
                places: &self.places,
                inboxes: &inboxes,
            };
            for event in table.events() {
                self.progress.event(&event, String::new)?;
            }
            lines.extend(table.lines());
            let audit = participant.client.audit().await?;
            violations += audit.violations.len();
            let name = participant.name();
            for found in &audit.violations {
                lines.push(format!("{name}: {}: {}: {}", found.owner, found.rule, found.detail));
            }
            self.progress.event(
                &json!({"event": "audit", "client": name, "clean": audit.is_clean(), "checks": audit.checks}),
                String::new,
            )?;
        }
        let (sums, findings) = with(&self.ledger, |ledger| ledger.judge());
        for Finding { what, who, id } in findings {
            let (what, name) = (what.name(), NAMES[who]);
            lines.push(format!("{what}: message {id}, by {name}"));
            self.progress
                .event(&json!({"event": what, "client": name, "message_id": id.to_string()}), String::new)?;
        }
        let clean = violations == 0;
        lines.push(report::line(&sums, &self.counts, clean));
        self.progress.event(&report::summary(&sums, &self.counts, clean), || lines.join("\n"))?;
        let well = clean && sums.lost == 0 && sums.duplicated == 0 && sums.reordered == 0;
        Ok(if well { Ended::Done } else { Ended::Failed })
    }

    /// Closes everything.
    pub(super) async fn strike(&mut self) {
        for participant in &mut self.participants {
            participant.leave().await;
        }
        if let Some(backend) = self.backend.take() {
            backend.stop().await;
        }
    }
}

fn require_confirmed(what: &str, outcome: &Outcome) -> Result<(), Failure> {
    match outcome {
        Outcome::Confirmed { .. } => Ok(()),
        other => Err(Failure::new(format!("{what} ended as {other:?}"))),
    }
}
