//! `encke token`: signs an access token for channels.

use std::process::ExitCode;

use encke_assembly::settings::{OrOff, Settings};
use encke_io::clock::Clock;
use encke_rights::{Signer, TokenContents};

use crate::arguments::TokenArgs;
use crate::error::{CommandError, CommandResult};
use crate::output::print;

pub(crate) fn run(arguments: &TokenArgs) -> CommandResult {
    let TokenArgs { publish, subscribe, presence, manage, sub, ttl, .. } = arguments;
    if sub.is_none() && [publish, subscribe, presence, manage].iter().all(|patterns| patterns.is_empty()) {
        let text = "the token would have neither a user nor a right: set --sub, --publish, --subscribe, --presence \
                    or --manage";
        return Err(CommandError::usage(text));
    }
    let expires_unix_s = match ttl {
        OrOff::Off => None,
        // A lifetime below one second would expire before the token is read.
        OrOff::On(ttl) => Some(Clock::new().now().unix_s().saturating_add(ttl.duration().as_secs().max(1))),
    };
    let token = signer(arguments)?
        .sign(&TokenContents {
            subject: sub.clone(),
            expires_unix_s,
            publish: publish.clone(),
            subscribe: subscribe.clone(),
            presence: presence.clone(),
            manage: manage.clone(),
        })
        .map_err(CommandError::usage)?;
    print(&format!("{token}\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the signing key: from `--key` if given, otherwise from the settings file.
fn signer(arguments: &TokenArgs) -> Result<Signer, CommandError> {
    let kid = arguments.kid.as_deref();
    match (&arguments.key, &arguments.config) {
        (Some(key), _) => Signer::of_file(key, kid).map_err(CommandError::system),
        (None, Some(config)) => Signer::of_settings(&Settings::read(config)?.auth, kid)
            .map_err(|error| CommandError::system(error).context(config.display())),
        (None, None) => Err(CommandError::usage(
            "a key is required: `--key FILE` (a private key as PEM, or a secret), or `-c FILE`, a settings file with \
             [[auth.keys]]",
        )),
    }
}
