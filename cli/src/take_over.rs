//! `larder take-over`: the operator says that this data directory is the one that goes on.

use crate::args::TakeOver;
use crate::output::{self, wait_for};
use server::offline::Offline;

const DONE: &str = "\
taken over: drives that another server has used up to now are this data directory's
next       `larder serve`. Nothing is removed from the rack meanwhile: put the newest catalog back, or make it again
           with `larder recover --replace`; or set accept_older_catalog = true in larder.toml if this one is the newest
";

/// `larder take-over`.
pub fn take_over(options: &TakeOver) -> anyhow::Result<()> {
    wait_for(async {
        Offline::take_over(&options.data.data).await?;
        if options.json {
            return output::print_json(&serde_json::json!({ "taken_over": true }));
        }
        Ok(output::print(DONE)?)
    })
}
