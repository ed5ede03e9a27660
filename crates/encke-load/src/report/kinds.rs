//! A saved run of either kind: requests or subscribers.

use serde_json::Value;

use super::merged::Unlike;
use super::saved::{SCHEMA, Saved, SavedRunError};
use crate::compare::Comparison;
use crate::explain::{self, Explained};
use crate::push;

/// The contents of a file written by `--json` or `--save`.
#[derive(Clone, PartialEq, Debug)]
pub enum SavedRun {
    /// Written by `encke load URL`.
    Requests(Box<Saved>),
    /// Written by `encke load push URL`: `"kind": "push"`.
    Push(Box<push::SavedPushRun>),
}

impl SavedRun {
    /// Parses a saved run.
    ///
    /// # Errors
    /// The text is not a saved run.
    pub fn read(text: &str) -> Result<Self, SavedRunError> {
        let malformed = |error: serde_json::Error| SavedRunError::Malformed(error.to_string());
        let value: Value = serde_json::from_str(text).map_err(malformed)?;
        match value["schema"].as_u64() {
            None => return Err(SavedRunError::Malformed("`schema` is missing".into())),
            Some(schema) if schema != u64::from(SCHEMA) => return Err(SavedRunError::Schema(schema)),
            Some(_) if value.get("find_max").is_some() => return Err(SavedRunError::Search),
            Some(_) => {}
        }
        if value["kind"] == "push" {
            return serde_json::from_value(value).map(Self::Push).map_err(malformed);
        }
        serde_json::from_value(value).map(Self::Requests).map_err(malformed)
    }

    /// The run as JSON.
    pub fn json(&self) -> Value {
        match self {
            Self::Requests(run) => run.json(),
            Self::Push(run) => run.json(),
        }
    }

    /// The run as text for one screen.
    pub fn summary(&self) -> String {
        match self {
            Self::Requests(run) => run.summary(),
            Self::Push(run) => run.summary(),
        }
    }

    /// The run as an HTML page.
    pub fn page(&self) -> String {
        match self {
            Self::Requests(run) => run.page(),
            Self::Push(run) => run.page(),
        }
    }

    /// The findings about its figures.
    pub fn explained(&self) -> Explained {
        match self {
            Self::Requests(run) => explain::of(run),
            Self::Push(run) => run.explained(),
        }
    }

    /// Merges several runs.
    ///
    /// # Errors
    /// The runs cannot be merged.
    pub fn merged(runs: Vec<Self>) -> Result<Self, Unlike> {
        let (mut requests, mut push) = (Vec::new(), Vec::new());
        for run in runs {
            match run {
                Self::Requests(run) => requests.push(*run),
                Self::Push(run) => push.push(*run),
            }
        }
        match (requests.is_empty(), push.is_empty()) {
            (false, false) => Err(Unlike::Kinds),
            (_, true) => Saved::merged(&requests).map(|run| Self::Requests(Box::new(run))),
            (true, _) => push::SavedPushRun::merged(&push).map(|run| Self::Push(Box::new(run))),
        }
    }

    /// Compares two runs.
    ///
    /// # Errors
    /// The runs are of different kinds.
    pub fn compared(names: [String; 2], runs: [&Self; 2]) -> Result<Comparison, Unlike> {
        match runs {
            [Self::Requests(one), Self::Requests(other)] => Ok(Comparison::of_runs(names, [one, other])),
            [Self::Push(one), Self::Push(other)] => Ok(Comparison::of_push_runs(names, [one, other])),
            _ => Err(Unlike::Kinds),
        }
    }
}
