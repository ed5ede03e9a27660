//! The console: the admin listener's pages and API, health, metrics.
//!
//! ```text
//!  browser, encke console, encke status ─► ConsoleHandler ─┬─ lists, actions, rules, log ─► ServerStatus (encke-server)
//!                                                          ├─ live pages, history ────────► Ticker (a thread)
//!                                                          └─ passwords, settings file ───► ConsoleThread
//! ```
//! The crate depends on no feature: each provides its metrics and lists by a `Source`, its actions by `Actions`, and its rules
//! by `Explain`. The contract is `openapi.json`, which a test holds the routes against.

mod access;
mod api;
mod audit;
mod call;
mod console;
mod history;
mod json;
mod live;
mod log_in;
mod page_limit;
mod pages;
mod problem;
mod routes;
mod series;
mod session;
mod settings;
mod settings_routes;
mod shared;
mod watch;
mod worker;

pub use console::{Console, ConsoleOptions};
pub use session::SessionLimits;
pub use settings::{
    ApplyError, OverriddenSetting, RunningSettings, SettingsCheck, SettingsControl, SettingsProblem,
    history_folder, remember_secrets, temporary_files,
};
pub use settings::{
    CertFingerprint, ConsoleRole, ConsoleSettings, ConsoleUser, ConsoleUserError, ConsoleUserFault,
    ConsoleUsers,
};
