//! Signs of life in both directions: keepalive, challenge, and a transport that takes nothing
//! (STR-033, STR-034).

use std::time::Instant;

use tonic::Status;

use super::{Action, Capture, Challenge, Frame, Held, Kind, Session};

impl Session {
    /// When [`Event::Tick`] is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let stall = self.held.as_ref().map(|held| held.since + self.timing.stall_wait);
        let silence = match (&self.challenge, self.started()) {
            (None, true) => Some(self.last_admission + self.timing.keepalive),
            (Some(challenge), _) => challenge.deadline,
            (None, false) => None,
        };
        stall.into_iter().chain(silence).min()
    }

    fn started(&self) -> bool {
        !matches!(self.capture, Some(Capture { update: None, .. }))
    }

    pub(super) fn taken(&mut self, now: Instant) {
        let Some(Held { ping: Some(nonce), .. }) = self.held.take() else {
            return;
        };
        if let Some(challenge) = &mut self.challenge
            && challenge.nonce == nonce
        {
            challenge.deadline = Some(now + self.timing.pong_wait);
        }
    }

    pub(super) fn tick(&mut self, now: Instant, actions: &mut Vec<Action>) {
        if self.held.as_ref().is_some_and(|held| now >= held.since + self.timing.stall_wait) {
            let status = Status::resource_exhausted("the reader is too slow");
            return self.end(Some(status), false, actions);
        }
        if let Some(Challenge { deadline: Some(deadline), .. }) = &self.challenge
            && now >= *deadline
        {
            let status = Status::deadline_exceeded("no Pong in time");
            return self.end(Some(status), false, actions);
        }
        let silent = now >= self.last_admission + self.timing.keepalive;
        if silent && self.challenge.is_none() && self.started() {
            self.sign_of_life(now, actions);
        }
    }

    fn sign_of_life(&mut self, now: Instant, actions: &mut Vec<Action>) {
        match self.kind {
            Kind::Native => {
                let nonce = self.next_nonce;
                self.next_nonce = self.next_nonce.wrapping_add(1);
                self.challenge = Some(Challenge { nonce, deadline: None });
                self.admit(Frame::Ping(nonce), now, actions);
            }
            Kind::Static if self.outbound.ends_in_keepalive() => self.last_admission = now,
            Kind::Static => self.admit(Frame::Keepalive, now, actions),
        }
    }
}
