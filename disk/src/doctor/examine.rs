//! The examination as a whole.

use super::finding::Finding;
use super::programs::Programs;
use super::{configuration, drives, kernel, smartd};
use crate::discover::Tree;

/// All findings on the machine whose files are in `tree`.
pub fn examine(tree: &Tree) -> Vec<Finding> {
    let programs = Programs::read(tree);
    let mut findings = programs.findings(tree);
    findings.extend(smartd::findings(tree, &programs));
    findings.extend(configuration::findings(tree));
    findings.extend(kernel::findings(tree));
    findings.extend(drives::findings(tree));
    findings
}
