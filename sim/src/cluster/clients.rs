//! The clients' requests.
//!
//! - A thread with a target rate sends its next request when that is due, or at once if it is late, as YCSB does;
//!   latencies count from the time of sending.
//! - A read goes to the primary. The first replica passes a write on, and the write is answered when all replicas have
//!   it.
//! - Requests that an OSD had at work when it failed are sent again when the group answers again.

use super::run::{Cluster, Event, Part, Stage, Thread, Work};
use super::{Course, ReadsFrom};
use core::time::Duration;
use model::Time;

impl Cluster {
    /// The due time of request `number` of a thread.
    pub fn due(&self, thread: u32, number: u64) -> Time {
        let Some(target) = self.run.clients.target_per_s else { return Time::ZERO };
        let turn = number * u64::from(self.run.clients.threads) + u64::from(thread);
        Time::ZERO + Duration::from_nanos((u128::from(turn) * 1_000_000_000 / u128::from(target)) as u64)
    }

    pub fn issue(&mut self, number: u32) {
        let is_write = self.objects.writes(self.run.clients.writes_permille);
        let object = if is_write {
            let object = self.objects.write(self.now);
            let group = self.group_of(object);
            self.groups[group].objects.push(object);
            object
        } else {
            self.out.reads += 1;
            self.objects.read()
        };
        let thread = &mut self.threads[number as usize];
        thread.sent += 1;
        (thread.issued, thread.object, thread.is_write, thread.at_work) = (self.now, object, is_write, true);
        self.send(number);
    }

    /// Sends a thread's request in a new attempt, as soon as its group answers.
    pub fn send(&mut self, number: u32) {
        let group = self.group_of(self.threads[number as usize].object);
        let thread = &mut self.threads[number as usize];
        thread.attempt += 1;
        let (attempt, object, is_write) = (thread.attempt, thread.object, thread.is_write);
        let group = &self.groups[group];
        if self.now < group.answers_from {
            self.agenda.plan(group.answers_from, Event::Resend(number, attempt));
            return;
        }
        thread.waits_for = group.holders().count() as u32;
        let primary = group.primary();
        let is_any = self.run.clients.reads_from == ReadsFrom::Any && !is_write;
        let position = if is_any { self.objects.any_replica() } else { primary };
        let position = if self.groups[self.group_of(object)].lost == Some(position) { primary } else { position };
        let osd = self.groups[self.group_of(object)].osds[position];
        let work = if is_write {
            Work::Write { thread: number, attempt, first: true }
        } else {
            Work::Read { thread: number, attempt }
        };
        let way = if is_write { self.way(self.objects.bytes(object)) } else { self.run.message };
        let part = Part { work, osd, position, object, stage: Stage::Object };
        self.agenda.plan(self.now + way, Event::Arrive(part));
    }

    pub fn begin_read(&mut self, part: Part) {
        let group = &self.groups[self.group_of(part.object)];
        let (primary, is_cold) = (group.primary(), self.objects.is_cold(part.object, part.position));
        if is_cold && part.position != primary {
            self.out.redirected += 1;
            let osd = group.osds[primary];
            let part = Part { osd, position: primary, ..part };
            self.agenda.plan(self.now + self.run.message * 2, Event::Arrive(part));
            return;
        }
        let is_known = self.objects.is_new(part.object) && !is_cold;
        self.ask(Part { stage: if is_known { Stage::Object } else { Stage::Record }, ..part });
    }

    pub fn begin_write(&mut self, part: Part) {
        if let Work::Write { thread, attempt, first: true } = part.work {
            let way = self.way(self.objects.bytes(part.object));
            let group = &self.groups[self.group_of(part.object)];
            for (position, osd) in group.holders().filter(|(position, _)| *position != part.position) {
                let work = Work::Write { thread, attempt, first: false };
                self.agenda.plan(self.now + way, Event::Arrive(Part { work, osd, position, ..part }));
            }
        }
        self.ask(Part { stage: Stage::Object, ..part });
    }

    pub fn acknowledged(&mut self, number: u32, attempt: u32) {
        let message = self.run.message;
        let thread = &mut self.threads[number as usize];
        if thread.attempt != attempt {
            return;
        }
        assert!(thread.waits_for > 0, "no replica acknowledges twice");
        thread.waits_for -= 1;
        if thread.waits_for == 0 {
            self.agenda.plan(self.now + message, Event::Reply(number, attempt));
        }
    }

    pub fn replied(&mut self, number: u32, attempt: u32) {
        let thread = &mut self.threads[number as usize];
        if thread.attempt != attempt {
            return;
        }
        thread.at_work = false;
        thread.attempt += 1;
        let (took, sent) = (self.now.since(thread.issued), thread.sent);
        self.out.latency.add(took);
        self.interval.ended += 1;
        self.interval.took += took;
        let due = self.due(number, sent).max(self.now);
        self.agenda.plan(due, Event::Issue(number));
    }

    /// Resends the requests that threads have at work in the groups of a failed OSD, when these groups answer again.
    pub fn send_again(&mut self) {
        assert!(matches!(self.run.course, Course::Failure(_)), "nothing else takes a group away");
        for number in 0..self.threads.len() {
            let Thread { object, at_work, .. } = self.threads[number];
            let answers_from = self.groups[self.group_of(object)].answers_from;
            if at_work && answers_from > self.now {
                self.send(number as u32);
            }
        }
    }
}
