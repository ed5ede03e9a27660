//! The settings of the API: everything below `/api/v1/settings`. All calls are made on the console's thread, one after another.
//!
//! ```text
//!  PUT, PATCH, restore ─► If-Match ─► check ─► store versions ─► replace the file ─► apply ─► 200
//!                            │ 412      │ 422 (unchanged)                              └─ fails: put the old file back ─► 409
//! ```

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use encke_io::clock::Clock;
use encke_server::CodedText;
use encke_settings::BYTES_MAX;
use encke_settings::conceal::MASK;
use encke_wire::method::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::check_cache::CheckCache;
use super::completion::complete;
use super::control::{ApplyError, RunningSettings, SettingsCheck, SettingsControl, SettingsProblem};
use super::difference::{as_json, difference, short, summary};
use super::file::{self, FileContent, FileError, FileStep};
use super::history::{VersionInfo, VersionList, VersionStore};
use super::masking::{Reader, has_mask, mask_text, mask_values};
use super::patch::{CHANGES_MAX, PatchError, ValueChange, patched};
use super::shape::SchemaShape;
use crate::problem::{ApiProblem, reason_json};

/// A request of `/api/v1/settings`. The caller has checked credentials and role.
#[derive(Clone, Debug)]
pub(crate) struct SettingsCall {
    pub(crate) method: Method,
    /// The path after `/api/v1/settings`, such as `/history/3/restore`.
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) if_match: Option<String>,
    pub(crate) user: String,
    pub(crate) address: String,
    pub(crate) is_admin: bool,
}

/// The response to a [`SettingsCall`].
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct SettingsAnswer {
    pub(crate) status: u16,
    /// A resource, or a problem (RFC 9457) if the status is 400 or above.
    pub(crate) body: Value,
    pub(crate) etag: Option<String>,
    /// The old and the new value in short, without secrets, for the audit.
    pub(crate) audit: Option<(String, String)>,
}

impl SettingsAnswer {
    fn ok(body: Value) -> Self {
        Self { status: 200, body, etag: None, audit: None }
    }
}

impl From<ApiProblem> for SettingsAnswer {
    fn from(problem: ApiProblem) -> Self {
        Self { status: problem.status, body: problem.json(), etag: None, audit: None }
    }
}

/// Reads, checks, changes and applies the settings file.
pub(crate) struct SettingsEditor {
    control: Arc<dyn SettingsControl>,
    schema: Value,
    /// Makes entity tags of this process: a plain digest would let viewers guess short secrets of the file.
    seed: RandomState,
    checks: CheckCache,
}

/// The body of PUT and of the checks.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextBody {
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CompletionBody {
    text: String,
    offset: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PatchBody {
    changes: Vec<ValueChange>,
}

impl SettingsEditor {
    pub(crate) fn new(control: Arc<dyn SettingsControl>) -> Self {
        let schema = control.schema();
        Self { control, schema, seed: RandomState::new(), checks: CheckCache::default() }
    }

    /// Responds to a request.
    pub(crate) fn call(&mut self, call: &SettingsCall) -> SettingsAnswer {
        self.respond(call).unwrap_or_else(SettingsAnswer::from)
    }

    fn respond(&mut self, call: &SettingsCall) -> Result<SettingsAnswer, ApiProblem> {
        if let Some((name, _)) = call.query.first() {
            return Err(ApiProblem::new(400, format!("the parameter `{name}` is unknown")));
        }
        let path: Vec<&str> = call.path.trim_start_matches('/').split('/').collect();
        match (call.method, &path[..]) {
            (Method::Get, [""]) => Ok(self.overview(call)),
            (Method::Get, ["schema"]) => Ok(SettingsAnswer::ok(self.schema.clone())),
            (Method::Get, ["history"]) => self.history(),
            (_, [] | [""] | ["file" | "check" | "complete" | "reload" | "history", ..]) if !call.is_admin => {
                Err(ApiProblem::of("role", 403, "this needs the role admin"))
            }
            (Method::Get, ["file"]) => {
                let content = self.content(&self.control.running())?;
                Ok(SettingsAnswer {
                    etag: Some(self.etag(&content.text)),
                    ..SettingsAnswer::ok(json!({ "schema": 1, "text": content.text }))
                })
            }
            (Method::Post, ["check"]) => self.check(body(call)?),
            (Method::Post, ["complete"]) => {
                let CompletionBody { text, offset } = body(call)?;
                Ok(SettingsAnswer::ok(complete(&text, offset, &self.schema).json()))
            }
            (Method::Put, ["file"]) => {
                let TextBody { text } = body(call)?;
                self.change(call, |_| Ok(text))
            }
            (Method::Patch, [""]) => {
                let PatchBody { changes } = body(call)?;
                if changes.len() > CHANGES_MAX {
                    return Err(
                        ApiProblem::new(422, format!("more than {CHANGES_MAX} changes")).at("/changes")
                    );
                }
                if let Some(place) = changes.iter().position(|change| has_mask(&change.value)) {
                    let text =
                        format!("the value has {MASK}, which stands for a secret: write the whole value");
                    return Err(ApiProblem::of("field", 422, text).at(&format!("/changes/{place}/value")));
                }
                self.change(call, |old| patched(old, &changes).map_err(unfit))
            }
            (Method::Get, ["history", number]) => self.version(number),
            (Method::Post, ["history", number, "restore"]) => {
                let running = self.control.running();
                let content = self.content(&running)?;
                let (_, text) = stored(&store(&content, &running), number)?;
                self.change(call, |_| Ok(text))
            }
            (Method::Post, ["reload"]) => self.reload(),
            _ => Err(ApiProblem::new(
                404,
                format!("the console has no resource /api/v1/settings{}", call.path),
            )),
        }
    }

    /// The settings in force, and their difference from the file.
    fn overview(&mut self, call: &SettingsCall) -> SettingsAnswer {
        let mut running = self.control.running();
        let content = self.content(&running).ok();
        let etag = content.as_ref().map(|content| self.etag(&content.text));
        let check = content.as_ref().map(|content| {
            let included: Vec<_> = running.included.iter().map(|path| file::stamp(path)).collect();
            let key =
                self.seed.hash_one((&content.text, &running.text, running.values.to_string(), included));
            let now_ns = Clock::new().now().mono_ns;
            self.checks.get(key, now_ns, || self.control.check(&content.text, false))
        });
        let reader = if call.is_admin { Reader::Admin } else { Reader::View };
        mask_values(&mut running.values, &SchemaShape::of(&self.schema), reader);
        let mut warnings = running.warnings.clone();
        let errors = || check.iter().flat_map(|check| &check.problems).filter(|problem| problem.is_error);
        warnings.extend(errors().map(|problem| said(problem, reader)));
        let is_same = |content: &FileContent| running.text.as_ref() == Some(&content.text);
        let same_text = content.as_ref().is_none_or(is_same);
        let file_differs = !same_text || check.as_ref().is_some_and(|check| check.differs);
        // What is no secret in a text with errors is not known for certain.
        let is_shown = reader == Reader::Admin || errors().next().is_none();
        let lines = match (&running.text, &content) {
            (Some(old), Some(content)) if is_shown => {
                let masked = |text: &str| mask_text(text, &self.schema, reader);
                masked(old).zip(masked(&content.text)).map(|(old, new)| as_json(&difference(&old, &new)))
            }
            _ => None,
        };
        let valid = check.as_ref().filter(|check| check.problems.iter().all(|problem| !problem.is_error));
        let (set, waiting) = match valid {
            Some(check) => (&check.set, &check.waiting_for_start),
            None => (&running.set, &running.waiting_for_start),
        };
        let reason = self.edit_reason(&running, content.as_ref(), call.is_admin);
        let overridden: Vec<Value> =
            running.overridden.iter().map(|one| json!({ "key": one.key, "by": one.by })).collect();
        let body = json!({
            "schema": 1,
            "file": running.file,
            "edit": reason.is_none(),
            "edit_reason": reason.as_ref().map(ToString::to_string),
            "edit_reason_code": reason.as_ref().and_then(reason_json),
            "included": running.included,
            "etag": etag,
            "file_differs": file_differs,
            "difference": lines.unwrap_or_else(|| json!([])),
            "waiting_for_start": waiting,
            "overridden": overridden,
            "warnings": warnings,
            "running": running.values,
            "set": set,
        });
        SettingsAnswer { etag, ..SettingsAnswer::ok(body) }
    }

    /// Why the file cannot be edited; `None` if it can.
    fn edit_reason(
        &self,
        running: &RunningSettings,
        content: Option<&FileContent>,
        is_admin: bool,
    ) -> Option<CodedText> {
        let Some(path) = &running.file else {
            return Some(no_file());
        };
        if !running.console.edit {
            return Some(CodedText::new(
                "edit_off",
                "editing is off: set edit = true in [console] of the settings file, and reload it",
            ));
        }
        if let Some(reason) = &running.fixed {
            return Some(reason.clone().into());
        }
        if !is_admin {
            return Some(CodedText::new(
                "edit_role",
                "your role is view: only users with the role admin edit the settings",
            ));
        }
        match content {
            Some(content) => file::obstacle(&content.path),
            None => file::read(path).err().map(|error| error.to_string().into()),
        }
    }

    /// The file as it is on the disk.
    fn content(&self, running: &RunningSettings) -> Result<FileContent, ApiProblem> {
        let Some(path) = &running.file else {
            return Err(ApiProblem::of("no-file", 409, no_file()));
        };
        file::read(path).map_err(|error| failed(&error))
    }

    fn etag(&self, text: &str) -> String {
        format!("\"{:x}-{:016x}\"", text.len(), self.seed.hash_one(text))
    }

    fn check(&self, TextBody { text }: TextBody) -> Result<SettingsAnswer, ApiProblem> {
        let running = self.control.running();
        // Only a user that may edit the file chooses which files are read.
        let check = self.control.check(within_limit(&text)?, running.console.edit);
        let current = self.content(&running).map(|content| content.text).unwrap_or_default();
        Ok(SettingsAnswer::ok(json!({
            "schema": 1,
            "problems": problems(&check),
            "waiting_for_start": check.waiting_for_start,
            "difference": as_json(&difference(&current, &text)),
        })))
    }

    /// Replaces the file and applies it. `new` makes the new text from the present one.
    fn change(
        &self,
        call: &SettingsCall,
        new: impl FnOnce(&str) -> Result<String, ApiProblem>,
    ) -> Result<SettingsAnswer, ApiProblem> {
        let running = self.control.running();
        let content = self.content(&running)?;
        if let Some(reason) = self.edit_reason(&running, Some(&content), call.is_admin) {
            return Err(ApiProblem::of("read-only", 409, reason));
        }
        let store = store(&content, &running);
        self.precondition(call, &content, &store)?;
        let text = new(&content.text)?;
        let check = self.control.check(within_limit(&text)?, true);
        if check.problems.iter().any(|problem| problem.is_error) {
            let text =
                CodedText::new("settings_invalid", "the settings are not valid, and the file is unchanged");
            return Err(ApiProblem::of("settings", 422, text).with("problems", problems(&check)));
        }
        let audit = self.audit(&content.text, &text);
        let notes = if text == content.text {
            self.apply()?
        } else {
            self.write(call, &running, content, &store, &text)?
        };
        let etag = self.etag(&text);
        let body = json!({ "schema": 1, "etag": etag, "notes": notes });
        Ok(SettingsAnswer { etag: Some(etag), audit: Some(audit), ..SettingsAnswer::ok(body) })
    }

    /// Stores the versions, replaces the file and applies it. Returns warnings.
    fn write(
        &self,
        call: &SettingsCall,
        running: &RunningSettings,
        content: FileContent,
        store: &VersionStore,
        text: &str,
    ) -> Result<Vec<String>, ApiProblem> {
        let quiet = &mut |_| {};
        let stored = |error: FileError| failed(&error);
        let unnamed = |time_ms| ("", "", time_ms);
        if let Some(left) = file::left_over(&content.path)
            && !store.has(&left).map_err(stored)?
        {
            store.add(&left, unnamed(unix_ms()), quiet).map_err(stored)?;
        }
        // A version that another program wrote, or the first one.
        store.add(&content.text, unnamed(content.modified_ms), quiet).map_err(stored)?;
        let by = (call.user.as_str(), call.address.as_str(), unix_ms());
        let number = store.add(text, by, quiet).map_err(stored)?;
        let unstored = || number.map_or(Ok(()), |number| store.remove(number));
        let kept = match file::replace(&content.path, (content.text.as_bytes(), text.as_bytes()), quiet) {
            Ok(kept) => kept,
            Err(error) => {
                let _listed_until_it_is_pruned = unstored();
                return Err(if error.step == FileStep::Compare {
                    self.overtaken(running)?
                } else {
                    failed(&error)
                });
            }
        };
        let mut notes = match self.control.apply() {
            Ok(notes) => notes,
            Err(error) => {
                let restored = kept.restore().and_then(|()| unstored());
                let mut reason = format!("{error}; the settings in force and the file are unchanged");
                if let Err(failure) = restored {
                    reason = format!("{error}; and the file could not be restored: {failure}");
                }
                return Err(rejected(&error, reason));
            }
        };
        // The settings are in force: an error here is only reported.
        let late = kept.late_content().and_then(|late| {
            let Some(late) = late.and_then(|late| String::from_utf8(late).ok()) else { return Ok(None) };
            store.add(&late, unnamed(unix_ms()), quiet)
        });
        let end = late.and_then(|late| {
            notes.extend(late.map(|number| {
                format!(
                    "another program has written the old file since you read it: its text is version {number}"
                )
            }));
            kept.discard()
        });
        let end = end.and_then(|()| store.prune(usize::from(running.console.history)));
        notes.extend(end.err().map(|error| error.to_string()));
        Ok(notes)
    }

    /// The response if another program has written the file after the check of If-Match.
    fn overtaken(&self, running: &RunningSettings) -> Result<ApiProblem, ApiProblem> {
        let content = self.content(running)?;
        let text = changed_by_program();
        Ok(ApiProblem::of("conflict", 412, text)
            .with("etag", self.etag(&content.text))
            .with("user", Value::Null)
            .with("time_ms", content.modified_ms))
    }

    /// Checks If-Match.
    fn precondition(
        &self,
        call: &SettingsCall,
        content: &FileContent,
        store: &VersionStore,
    ) -> Result<(), ApiProblem> {
        let Some(given) = &call.if_match else {
            let text = "send If-Match with the ETag of the file that you have read";
            return Err(ApiProblem::of("precondition-required", 428, text));
        };
        let etag = self.etag(&content.text);
        if given.split(',').any(|tag| matches!(tag.trim(), "*") || tag.trim() == etag) {
            return Ok(());
        }
        let last = store.newest().ok().flatten();
        let (user, address, time_ms) = match last {
            Some((info, text)) if text == content.text && !info.user.is_empty() => {
                (json!(info.user), info.address, info.time_ms)
            }
            _ => (Value::Null, String::new(), content.modified_ms),
        };
        let text = match &user {
            Value::String(user) => {
                let text =
                    CodedText::new("changed", "{user} from {address} has changed the file since you read it");
                text.with("user", user).with("address", address)
            }
            _ => changed_by_program(),
        };
        Err(ApiProblem::of("conflict", 412, text)
            .with("etag", etag)
            .with("user", user)
            .with("time_ms", time_ms))
    }

    /// The changed lines in short, without secrets.
    fn audit(&self, old: &str, new: &str) -> (String, String) {
        let masked = |text: &str| mask_text(text, &self.schema, Reader::View);
        match masked(old).zip(masked(new)).map(|(old, new)| short(&difference(&old, &new))) {
            Some(sides) if !sides.0.is_empty() || !sides.1.is_empty() => sides,
            _ => (String::new(), summary(&difference(old, new))),
        }
    }

    fn history(&self) -> Result<SettingsAnswer, ApiProblem> {
        let running = self.control.running();
        if running.file.is_none() {
            return Ok(SettingsAnswer::ok(json!({ "schema": 1, "versions": [], "notes": [] })));
        }
        let content = self.content(&running)?;
        let store = store(&content, &running);
        let VersionList { mut versions, damaged } = store.versions().map_err(|error| failed(&error))?;
        versions.reverse();
        // Of several versions with the same text, the newest is the current one.
        let has_text = |version: &VersionInfo| {
            let is_candidate = version.bytes == content.text.len() as u64;
            is_candidate && matches!(store.read(version.number), Ok(Some((_, text))) if text == content.text)
        };
        let current = versions.iter().find(|version| has_text(version)).map(|version| version.number);
        let version = |version: &VersionInfo| {
            json!({
                "number": version.number,
                "time_ms": version.time_ms,
                "user": version.user,
                "address": version.address,
                "summary": version.summary,
                "bytes": version.bytes,
                "current": Some(version.number) == current,
            })
        };
        let count = usize::from(running.console.history);
        let versions: Vec<Value> = versions.iter().take(count).map(version).collect();
        let notes: Vec<String> = damaged.iter().map(ToString::to_string).collect();
        Ok(SettingsAnswer::ok(json!({ "schema": 1, "versions": versions, "notes": notes })))
    }

    fn version(&self, number: &str) -> Result<SettingsAnswer, ApiProblem> {
        let running = self.control.running();
        let content = self.content(&running)?;
        let (info, text) = stored(&store(&content, &running), number)?;
        Ok(SettingsAnswer::ok(json!({
            "schema": 1,
            "number": info.number,
            "text": text,
            "difference": as_json(&difference(&content.text, &text)),
        })))
    }

    fn reload(&self) -> Result<SettingsAnswer, ApiProblem> {
        let running = self.control.running();
        if running.file.is_some() {
            let content = self.content(&running)?;
            let check = self.control.check(&content.text, true);
            if check.problems.iter().any(|problem| problem.is_error) {
                let text = "the settings file is not valid, and the settings in force stay";
                return Err(ApiProblem::of("settings", 422, text).with("problems", problems(&check)));
            }
        }
        let notes = self.apply()?;
        Ok(SettingsAnswer::ok(json!({ "schema": 1, "notes": notes })))
    }

    fn apply(&self) -> Result<Vec<String>, ApiProblem> {
        self.control.apply().map_err(|error| {
            let reason = format!("{error}; the settings in force are unchanged");
            rejected(&error, reason)
        })
    }
}

fn store(content: &FileContent, running: &RunningSettings) -> VersionStore {
    VersionStore::of(&content.path, running.state_dir.as_deref())
}

fn stored(store: &VersionStore, number: &str) -> Result<(VersionInfo, String), ApiProblem> {
    let version = match number.parse() {
        Ok(number) => store.read(number).map_err(|error| failed(&error))?,
        Err(_) => None,
    };
    version.ok_or_else(|| {
        let text =
            CodedText::new("version_unknown", "there is no version {number}; see /api/v1/settings/history");
        ApiProblem::new(404, text.with("number", number))
    })
}

fn body<T: DeserializeOwned>(call: &SettingsCall) -> Result<T, ApiProblem> {
    serde_json::from_slice(&call.body)
        .map_err(|error| ApiProblem::new(400, format!("the body is not the expected JSON: {error}")))
}

fn within_limit(text: &str) -> Result<&str, ApiProblem> {
    if text.len() as u64 > BYTES_MAX {
        let text = CodedText::new("settings_large", "the settings are larger than 1 MiB");
        return Err(ApiProblem::new(413, text));
    }
    Ok(text)
}

fn no_file() -> CodedText {
    CodedText::new("no_file", "the server was started without a settings file: start it with -c FILE")
}

fn changed_by_program() -> CodedText {
    CodedText::new("changed_by_program", "another program has changed the file since you read it")
}

/// A file operation failed.
fn failed(error: &FileError) -> ApiProblem {
    ApiProblem::of("file", 409, error.to_string())
}

/// The server did not apply the settings.
fn rejected(error: &ApplyError, reason: String) -> ApiProblem {
    match error {
        ApplyError::Stopping | ApplyError::Busy => ApiProblem::new(503, reason),
        ApplyError::Rejected(_) | ApplyError::Fixed(_) => ApiProblem::of("rejected", 409, reason),
    }
}

/// A change does not fit to the file.
fn unfit((place, error): (usize, PatchError)) -> ApiProblem {
    let part = if matches!(error, PatchError::Value(_)) { "value" } else { "path" };
    ApiProblem::of("field", 422, error.to_string()).at(&format!("/changes/{place}/{part}"))
}

fn problems(check: &SettingsCheck) -> Value {
    let problem = |problem: &SettingsProblem| {
        let at = |place: Option<(usize, usize)>| match place {
            Some((line, column)) => (json!(line), json!(column)),
            None => (Value::Null, Value::Null),
        };
        let ((line, column), (end_line, end_column)) = (at(problem.start), at(problem.end));
        json!({
            "file": problem.file,
            "line": line,
            "column": column,
            "end_line": end_line,
            "end_column": end_column,
            "key": problem.key,
            "message": problem.message,
            "hint": problem.hint,
            "level": if problem.is_error { "error" } else { "warning" },
        })
    };
    check.problems.iter().map(problem).collect()
}

/// A problem in one line. A message may quote a secret.
fn said(problem: &SettingsProblem, reader: Reader) -> String {
    let file = problem.file.as_deref().unwrap_or("the settings file");
    let message = match reader {
        Reader::Admin => problem.message.as_str(),
        Reader::View => "an error; users with the role admin see the message",
    };
    match problem.start {
        Some((line, column)) => format!("{file}:{line}:{column}: {message}"),
        None => format!("{file}: {message}"),
    }
}

fn unix_ms() -> u64 {
    Clock::new().now().unix_ns / 1_000_000
}
