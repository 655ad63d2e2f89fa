//! Deep scrubs, and the migration that piggybacks on them.
//!
//! An OSD scrubs one group at a time. A scrub reads all replicas of each object. A copy that the thermometer calls cold
//! is in memory then, and is written to the cold drive without another read, if the drive has room. The primary's
//! copies stay hot.

use super::REPLICAS;
use super::run::{Cluster, Event, Part, Stage, Work};
use engine::thermometer::Standing;

impl Cluster {
    /// Marks the copies that scrubs before the run have moved.
    pub fn migrate_before_the_run(&mut self) {
        for object in 0..self.objects.unscrubbed() {
            for position in 0..REPLICAS {
                if self.is_to_move(object, position) {
                    self.objects.set_cold(object, position, true);
                }
            }
        }
    }

    /// True if a copy moves to the cold drive; then its space there is reserved.
    fn is_to_move(&mut self, object: u32, position: usize) -> bool {
        let osd = self.groups[self.group_of(object)].osds[position];
        let stays_hot = position == 0 || position == 1 && self.run.second_stays_hot;
        if stays_hot || self.daemons[osd].cold.is_none() || self.objects.is_cold(object, position) {
            return false;
        }
        let (facts, now_ms) = self.objects.facts(object, self.now);
        let is_cold = self.run.thermometer.judge(&facts, now_ms).standing == Standing::Due;
        is_cold && self.takes_cold(osd, facts.bytes)
    }

    /// Scrubs all groups.
    pub fn begin_scrubs(&mut self) {
        let groups = self.groups.iter().enumerate().filter(|(_, group)| !group.objects.is_empty());
        self.to_scrub = groups.map(|(number, _)| number as u32).collect();
        self.start_scrubs();
    }

    fn start_scrubs(&mut self) {
        let mut waiting = Vec::new();
        for number in std::mem::take(&mut self.to_scrub) {
            let osds = self.groups[number as usize].osds;
            if osds.iter().any(|osd| self.daemons[*osd].busy.scrubs) {
                waiting.push(number);
                continue;
            }
            for osd in osds {
                self.daemons[osd].busy.scrubs = true;
            }
            let group = &mut self.groups[number as usize];
            (group.next, group.end) = (0, group.objects.len());
            self.scrub_next(number);
        }
        self.to_scrub = waiting;
    }

    /// Scrubs the next chunk of a group's objects: each replica reads them one after the other.
    fn scrub_next(&mut self, number: u32) {
        let group = &mut self.groups[number as usize];
        let first = group.next;
        group.next = group.end.min(first + self.run.scrub_chunk as usize);
        group.under_way = (group.next - first) * REPLICAS;
        if group.under_way == 0 {
            self.scrubbed(number);
            return;
        }
        for position in 0..REPLICAS {
            self.scrub_copy(number, position, first);
        }
    }

    fn scrub_copy(&mut self, number: u32, position: usize, index: usize) {
        let group = &self.groups[number as usize];
        let (osd, object) = (group.osds[position], group.objects[index]);
        let work = Work::Scrub { group: number, index: index as u32 };
        self.agenda.plan(self.now, Event::Arrive(Part { work, osd, position, object, stage: Stage::Object }));
    }

    /// All objects of a group were read.
    fn scrubbed(&mut self, number: u32) {
        let osds = self.groups[number as usize].osds;
        for osd in osds {
            self.daemons[osd].busy.scrubs = false;
        }
        self.start_scrubs();
        if self.to_scrub.is_empty() && !self.daemons.iter().any(|daemon| daemon.busy.scrubs) {
            self.out.scrub.ended = Some(self.now);
            self.agenda.plan(self.now, Event::End);
        }
    }

    /// A copy was read, or is where it belongs. While a cold copy is written, the next copy is read.
    pub fn scrub_stage_ended(&mut self, number: u32, index: u32, part: Part) {
        let group = &self.groups[number as usize];
        let next = index as usize + 1;
        if part.stage == Stage::Object && next < group.next {
            self.scrub_copy(number, part.position, next);
        }
        match part.stage {
            Stage::Object if self.is_to_move(part.object, part.position) => {
                self.ask(Part { stage: Stage::Migrate, ..part });
                return;
            }
            Stage::Migrate => {
                self.ask(Part { stage: Stage::Commit, ..part });
                return;
            }
            Stage::Commit => {
                self.out.scrub.migrated += 1;
                self.objects.set_cold(part.object, part.position, true);
            }
            Stage::Record | Stage::Object => {}
        }
        let group = &mut self.groups[number as usize];
        group.under_way -= 1;
        if group.under_way == 0 {
            self.scrub_next(number);
        }
    }
}
