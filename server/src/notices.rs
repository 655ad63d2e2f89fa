//! Consequences of a server's configuration that an operator should know, in sentences with their fix. Shown by `init`,
//! at every start, and in `larder status`.

use crate::condition::Condition;
use crate::config::Config;
use crate::report::Status;
use disk::owner::Claim;
use engine::thermometer::Temperature;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The sentences for one server. None by default.
#[derive(Clone, Debug, Default)]
pub struct Notices {
    /// That S3 can be reached from other machines without TLS, if so.
    pub network: Option<String>,
    /// The place of new objects, and the time for which they stay there.
    pub staging: String,
    /// The reason that the catalog has no journal, if so.
    pub journal: Option<String>,
    /// Lists the media of other servers.
    pub(crate) claim: Option<Arc<Claim>>,
    /// True if new objects may stay there permanently.
    stays: bool,
}

impl Notices {
    /// The notices for `config` on `address`.
    pub fn of(config: &Config, address: SocketAddr) -> Self {
        let by_rules = config.thermometer.thermometer().is_used();
        let stays = config.migrate.older_than.is_none() && !by_rules;
        let network = if config.tls.files().is_none() { network(address) } else { None };
        Self { network, staging: staging(config), journal: None, claim: None, stays }
    }

    /// Adds the sentences to `status`: as warnings if an operator should change something.
    pub fn add_to(&self, status: &mut Status) {
        status.warn(self.network.clone().map(|sentence| Condition::NetworkOpen.warns(sentence)));
        status.warn(self.journal.clone().map(|sentence| Condition::JournalMissing.warns(sentence)));
        let refused = self.claim.as_ref().and_then(|claim| refused(claim));
        status.warn(refused.map(|sentence| Condition::MediumForeign.warns(sentence)));
        let staging = Some(self.staging.clone()).filter(|sentence| !sentence.is_empty());
        if self.stays && status.workshop.staged_count > 0 {
            status.warn(staging.map(|sentence| Condition::StagedStays.warns(sentence)));
        } else {
            status.notes.extend(staging);
        }
    }
}

/// A sentence on the media that other servers own.
fn refused(claim: &Claim) -> Option<String> {
    let refused = claim.refused();
    let (path, why) = refused.first()?;
    let others = match refused.len() {
        1 => String::new(),
        more => format!(", and {} more", more - 1),
    };
    Some(format!("{}{others}: not used: {why}", path.display()))
}

/// That `address` can be reached from other machines, if so.
pub fn network(address: SocketAddr) -> Option<String> {
    (!address.ip().to_canonical().is_loopback()).then(|| {
        format!(
            "S3 on {address} is open to the network without TLS: anyone on the network path can read signatures and \
             all data; set certificate and key under [tls] in larder.toml, or write listen = \"127.0.0.1:{}\" there",
            address.port()
        )
    })
}

/// The place of new objects until they move to the rack.
pub fn staging(config: &Config) -> String {
    let percent = |permille: u32| format!("{} %", f64::from(permille) / 10.0);
    let (regular, critical) = (config.workshop.regular_permille, config.workshop.critical_permille);
    let migrate = &config.migrate;
    let small = match migrate.min_bytes {
        0 => String::new(),
        bytes => format!(" Those below {bytes} bytes stay until the workshop is {} full.", percent(critical)),
    };
    let on_one_disk = "New objects are stored only on the server's own disk, without redundancy,";
    if config.thermometer.thermometer().default == Temperature::Hot {
        return format!(
            "{on_one_disk} until a rule of [thermometer] in larder.toml calls them cold; objects that no rule calls \
             cold stay there, and move only while the workshop is {} full (migrate.older_than and workshop.regular do \
             not apply to them).{small}",
            percent(critical)
        );
    }
    match migrate.older_than {
        Some(age) => format!(
            "{on_one_disk} until they move to the rack: when they are {} to {} old, or sooner when the workshop is {} \
             full (migrate.older_than, migrate.linger and workshop.regular in larder.toml).{small}",
            span(age),
            span(age + migrate.linger),
            percent(regular)
        ),
        None => format!(
            "{on_one_disk} for as long as the workshop is less than {} full; write older_than = \"1 d\" under \
             [migrate] in larder.toml to move them to the rack at that age.{small}",
            percent(regular)
        ),
    }
}

/// A duration with its two largest units, as in larder.toml.
fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let units = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)];
    let Some(first) = units.iter().position(|(_, unit)| seconds >= *unit) else { return "0 s".to_owned() };
    let (mut left, mut shown) = (seconds, Vec::new());
    for (name, unit) in units.iter().skip(first).take(2) {
        if left >= *unit {
            shown.push(format!("{} {name}", left / unit));
        }
        left %= unit;
    }
    shown.join(" ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::path::Path;

    fn config(text: &str) -> Config {
        Config::parse(Path::new("larder.toml"), text).unwrap()
    }

    #[test]
    fn what_others_can_reach_is_told_with_its_address() {
        for closed in ["127.0.0.1:9000", "127.8.8.8:1", "[::1]:9000", "[::ffff:127.0.0.1]:9000"] {
            assert_eq!(network(closed.parse().unwrap()), None, "{closed}");
        }
        for open in ["0.0.0.0:9000", "[::]:9000", "192.0.2.1:9000", "[::ffff:192.0.2.1]:9000"] {
            let notice = network(open.parse().unwrap()).unwrap();
            assert!(
                notice.contains(open) && notice.contains("without TLS") && notice.contains("127.0.0.1:9000"),
                "{notice}"
            );
        }
    }

    #[test]
    fn how_long_objects_lie_on_one_disk_is_told_with_what_to_set() {
        let notice = staging(&config(""));
        assert!(notice.contains("less than 30 % full; write older_than = \"1 d\""), "{notice}");
        let notice = staging(&config("[migrate]\nolder_than = \"1 d\"\nmin_size = 7\n[workshop]\nregular = 0.255"));
        assert!(notice.contains("1 d to 1 d 1 h old") && notice.contains("25.5 % full"), "{notice}");
        assert!(notice.ends_with("Those below 7 bytes stay until the workshop is 80 % full."), "{notice}");
    }

    #[test]
    fn what_no_rule_calls_cold_stays_and_the_notice_says_so() {
        let notice = staging(&config("[migrate]\nolder_than = \"1 d\"\n[[thermometer.rule]]\nname = \"x\"\n"));
        assert!(notice.contains("while the workshop is 80 % full") && notice.contains("calls them cold"), "{notice}");
        let notice = staging(&config("[thermometer]\ndefault = \"cold\"\n[[thermometer.rule]]\nname = \"x\"\n"));
        assert!(notice.contains("less than 30 % full"), "{notice}");
    }

    #[test]
    fn spans_are_written_as_in_the_configuration() {
        for (seconds, shown) in [(0, "0 s"), (90, "1 min 30 s"), (3_600, "1 h"), (90_000, "1 d 1 h"), (86_401, "1 d")] {
            assert_eq!(span(Duration::from_secs(seconds)), shown);
        }
    }
}
