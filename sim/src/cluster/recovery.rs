//! An OSD fails, and its data is copied to other OSDs of its host.
//!
//! Its groups answer again after a while, from the next of their replicas. Once the cluster counts the OSD as out, each
//! group copies its objects to the replacing OSD, at the pace of the cluster; an OSD sends for one group at a time, and
//! receives for one. Until then the next replica answers; if that is on a cold OSD, its cold drive may have to start.

use super::Course;
use super::run::{COLD, Cluster, Event, Part, Stage, Work};
use core::time::Duration;

impl Cluster {
    /// Fails the first OSD with a cold drive, or else the first OSD. Its drives stay powered.
    pub fn fail(&mut self) {
        let Course::Failure(failure) = self.run.course else { panic!("nothing fails in this run") };
        let failed = self.daemons.iter().position(|daemon| daemon.cold.is_some()).unwrap_or(0);
        self.daemons[failed].is_alive = false;
        for group in &mut self.groups {
            group.lost = group.osds.iter().position(|osd| *osd == failed);
            if group.lost.is_some() {
                group.answers_from = self.now + failure.peering;
            }
        }
        self.send_again();
    }

    /// Counts the failed OSD as out: its groups need recovery.
    pub fn out(&mut self) {
        for number in 0..self.groups.len() {
            if let Some(lost) = self.groups[number].lost {
                self.to_recover.push(number as u32);
                let target = self.target(number, lost);
                self.reserve(number, target, 1);
            }
        }
        self.start_recoveries();
    }

    fn target(&self, number: usize, lost: usize) -> usize {
        let failed = self.groups[number].osds[lost];
        let host = self.daemons[failed].host;
        self.map.of_host(number, host, Some(failed)).expect("a host has another OSD")
    }

    /// Reserves recovery on the OSDs of a group, or releases the reservation.
    fn reserve(&mut self, number: usize, target: usize, by: i32) {
        for osd in self.groups[number].osds.into_iter().chain([target]) {
            let daemon = &mut self.daemons[osd];
            let Some(reserved) = daemon.reserved.checked_add_signed(by) else { panic!("{osd} is not reserved") };
            daemon.reserved = reserved;
            if let Some(manager) = &mut daemon.manager {
                manager.reserve_recovery(COLD, reserved > 0);
            }
        }
    }

    fn start_recoveries(&mut self) {
        let mut waiting = Vec::new();
        for number in std::mem::take(&mut self.to_recover) {
            let group = &self.groups[number as usize];
            let Some(lost) = group.lost else { continue };
            let (source, target) = (group.osds[group.primary()], self.target(number as usize, lost));
            if self.daemons[source].busy.sends || self.daemons[target].busy.takes {
                waiting.push(number);
                continue;
            }
            (self.daemons[source].busy.sends, self.daemons[target].busy.takes) = (true, true);
            let group = &mut self.groups[number as usize];
            (group.target, group.next, group.end) = (Some(target), 0, group.objects.len());
            self.agenda.plan(self.now, Event::Recover(number));
        }
        self.to_recover = waiting;
    }

    pub fn recover_next(&mut self, number: u32) {
        let group = &mut self.groups[number as usize];
        let Some(object) = group.objects[..group.end].get(group.next).copied() else {
            self.recovered_if_done(number);
            return;
        };
        group.next += 1;
        group.under_way += 1;
        let position = group.primary();
        let part = Part {
            work: Work::Push { group: number },
            osd: group.osds[position],
            position,
            object,
            stage: Stage::Record,
        };
        self.agenda.plan(self.now, Event::Arrive(part));
        self.agenda.plan(self.now + self.pace(), Event::Recover(number));
    }

    fn pace(&self) -> Duration {
        let Course::Failure(failure) = self.run.course else { panic!("nothing fails in this run") };
        failure.pace
    }

    /// An object was read, and goes to the target OSD.
    pub fn pushed(&mut self, number: u32, part: Part) {
        let group = &self.groups[number as usize];
        let (Some(lost), Some(target)) = (group.lost, group.target) else { panic!("group {number} does not recover") };
        let way = self.way(self.objects.bytes(part.object));
        let taken = Part { work: Work::Take { group: number }, osd: target, position: lost, ..part };
        self.agenda.plan(self.now + way, Event::Arrive(taken));
    }

    pub fn taken(&mut self, number: u32) {
        self.out.copied += 1;
        self.groups[number as usize].under_way -= 1;
        self.recovered_if_done(number);
    }

    fn recovered_if_done(&mut self, number: u32) {
        let group = &mut self.groups[number as usize];
        let (Some(lost), Some(target)) = (group.lost, group.target) else { return };
        if group.next < group.end || group.under_way > 0 {
            return;
        }
        let source = group.osds[group.primary()];
        self.reserve(number as usize, target, -1);
        let group = &mut self.groups[number as usize];
        (group.osds[lost], group.lost, group.target) = (target, None, None);
        for object in &group.objects {
            self.objects.set_cold(*object, lost, false);
        }
        (self.daemons[source].busy.sends, self.daemons[target].busy.takes) = (false, false);
        self.start_recoveries();
        let is_over = self.to_recover.is_empty() && self.groups.iter().all(|group| group.lost.is_none());
        if is_over {
            self.out.recovered = Some(self.now);
        }
    }
}
