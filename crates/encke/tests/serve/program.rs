//! The command line as users and scripts see it: flags, help, files, output, exit status.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::running::{Folder, Running, encke, text};

fn run(arguments: &[&str]) -> Output {
    encke().args(arguments).output().expect("the program starts")
}

const COMMANDS: [&str; 13] = [
    "serve",
    "demo",
    "pub",
    "sub",
    "load",
    "token",
    "lab",
    "check",
    "status",
    "schema",
    "completions",
    "service",
    "man",
];

#[test]
fn every_help_fits_one_screen_and_ends_with_three_examples() {
    let mut pages = vec![run(&["-h"])];
    pages.extend(COMMANDS.map(|command| run(&[command, "-h"])));
    pages.extend(
        ["push", "compare", "merge", "explain", "report"].map(|command| run(&["load", command, "-h"])),
    );
    pages.push(run(&["lab", "merge", "-h"]));
    pages.push(run(&["service", "install", "-h"]));
    for page in pages {
        assert_eq!(page.status.code(), Some(0));
        let help = text(&page.stdout);
        // `load` has the most flags.
        let most = if help.contains("--find-max") { 32 } else { 24 };
        assert!(help.lines().count() <= most, "{} lines:\n{help}", help.lines().count());
        assert!(help.lines().all(|line| line.chars().count() <= 100), "a line is too wide:\n{help}");
        let examples = help.split_once("Examples:\n").map(|(_, examples)| examples.lines().count());
        assert_eq!(examples, Some(3), "{help}");
    }
}

#[test]
fn the_short_help_of_load_names_what_first_users_look_for_and_fits_80_columns() {
    let help = text(&run(&["load", "-h"]).stdout);
    for flag in ["--find-max", "--report", "--watch", "--save", "--json", "--slo"] {
        assert!(help.contains(flag), "no {flag}:\n{help}");
    }
    let wrapped: usize = help.lines().map(|line| line.chars().count().div_ceil(80).max(1)).sum();
    assert!(wrapped <= 50, "{wrapped} lines of 80 columns:\n{help}");
}

#[test]
fn the_long_help_is_the_short_one_unless_that_would_be_more_than_a_screen() {
    for command in COMMANDS.into_iter().filter(|command| *command != "load") {
        assert_eq!(text(&run(&[command, "-h"]).stdout), text(&run(&[command, "--help"]).stdout));
    }
}

#[test]
fn the_version_is_one_line_with_back_ends_and_target() {
    let version = text(&run(&["--version"]).stdout);
    assert_eq!(version.lines().count(), 1, "{version}");
    let start = format!("encke {} (", env!("CARGO_PKG_VERSION"));
    assert!(version.starts_with(&start) && version.contains("back ends: "), "{version}");
    assert!(version.contains("poll; ") && version.contains('-'), "{version}");
}

#[test]
fn the_version_names_the_cargo_profile_unless_it_is_release() {
    // Cargo's directories: target/PROFILE/encke; the profile `dev` has `debug`.
    let folder = Path::new(env!("CARGO_BIN_EXE_encke")).parent().and_then(Path::file_name).expect("a folder");
    let named = format!("({} build; ", folder.to_string_lossy());
    let version = text(&run(&["--version"]).stdout);
    assert_eq!(version.contains(&named), folder != "release" && folder != "dist", "{version}");
}

#[test]
fn wrong_flags_are_usage_errors_that_say_what_was_meant() {
    for (arguments, said) in [
        (&[][..], "Usage: encke"),
        (&["sevre"], "'serve'"),
        (&["serve", "--backlgo", "5"], "'--backlog'"),
        (&["serve", "--root", "public"], "encke serve DIR"),
        (&["run"], "here it is encke serve"),
        (&["serve", "-l", "eighty"], "expected 8080, :8080"),
        (&["serve", "-l", "127.0.0.1:65536"], "the maximum is 65535"),
        (&["serve", "-w", "0"], "auto or a number"),
        (&["serve", "--backend", "epol-edge"], "did you mean epoll-edge?"),
        (&["serve", "--backlog", "0"], "0 is not in 1"),
        (&["serve", "one", "two"], "unexpected argument 'two'"),
        (&["status", "--watch", "--json"], "cannot be used with"),
        (&["status", "ftp://localhost"], "invalid admin listener"),
        (&["load"], "<URL>"),
        (&["load", "-n", "5", "-d", "5s", "http://localhost/"], "cannot be used with"),
        (&["load", "-n", "0", "http://localhost/"], "expected a whole number, 1 or more"),
        (&["load", "-t", "10s", "http://localhost/"], "use -d 10s for a time"),
        (&["load", "-n", "1.5k", "http://localhost/"], "such as 500, 10k or 2M"),
        (&["load", "-c", "5000M", "http://localhost/"], "the number is too large"),
        (&["load", "-z10s", "http://localhost/"], "-d TIME"),
        (&["load", "-kc", "5", "http://localhost/"], "--no-keepalive disables it"),
        (&["load", "-r", "fast", "http://localhost/"], "20k, 1k..50k/60s"),
        (&["load", "-r", "5", "--pipeline", "2", "http://localhost/"], "cannot be combined with a rate"),
        (&["load", "--slo", "p99=1ms", "http://localhost/"], "p99<10ms"),
        (&["load", "-c", "1", "http://127.0.0.1:1/", "http://127.0.0.1:2/"], "2 servers"),
        (&["load", "-H", "nothing", "http://localhost/"], "'Name: value'"),
        (&["load", "-H", "Content-Length: 5", "http://localhost/"], "follows from the body"),
        (
            &["load", "--find-max", "p99<1s", "--save", "a", "http://localhost/"],
            "with --save, which is for one run",
        ),
        (
            &["load", "--find-max", "p99<1s", "--report", "a", "http://localhost/"],
            "with --report, which is for",
        ),
        (&["completions", "tcsh"], "bash"),
        (&["man", "sevre"], "expected one of serve, demo, pub"),
        (&["man", "load-psuh"], "load-push"),
        (&["version", "now"], "encke version has no arguments"),
        (&["load", "compare", "a.json", "b.json", "-n5"], "unexpected argument '-n'"),
        (&["load", "compare", "a.json", "b.json", "-r5"], "--rate has no effect on saved runs"),
        (&["lab", "--list", "--json"], "--json has no effect with --list"),
        (&["check"], "a settings file is required"),
        (&["service", "start"], "here use systemd: systemctl start encke"),
        (&["service"], "Usage: encke service"),
        (&["lab"], "<EXPERIMENT>"),
        (&["lab", "parsr"], "expected accept, backlog"),
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(said), "{arguments:?}: {}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
    }
}

#[test]
fn help_and_version_are_commands_too() {
    assert_eq!(text(&run(&["help"]).stdout), text(&run(&["--help"]).stdout));
    assert_eq!(text(&run(&["help", "load"]).stdout), text(&run(&["load", "--help"]).stdout));
    assert_eq!(text(&run(&["help", "load", "push"]).stdout), text(&run(&["load", "push", "--help"]).stdout));
    for words in [&["version"][..], &["-V"]] {
        assert_eq!(text(&run(words).stdout), text(&run(&["--version"]).stdout));
    }
    let wrong = run(&["help", "sevre"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("'serve'"), "{}", text(&wrong.stderr));
}

#[test]
fn every_page_that_a_man_page_names_can_be_printed() {
    for command in ["load-push", "load-compare", "lab-merge"] {
        let page = run(&["man", command]);
        assert_eq!(page.status.code(), Some(0), "{command}: {}", text(&page.stderr));
        assert!(
            text(&page.stdout).contains(&format!("encke\\-{}", command.replace('-', "\\-"))),
            "{command}"
        );
    }
}

#[test]
fn a_good_settings_file_is_summed_up() {
    let folder = Folder::new("check-good");
    folder.write("public/index.html", "hello");
    let file =
        folder.write("encke.toml", "[server]\nlisten = [\"8080\", \":81\"]\n[[site]]\nroot = \"public\"\n");
    let output = run(&["check", &file]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.starts_with(&format!("{file} is valid.\n")), "{said}");
    assert!(said.contains("8080, :81") && said.contains("public"), "{said}");
    let by_environment = encke().arg("check").env("ENCKE_CONFIG", &file).output().expect("it starts");
    assert_eq!(text(&by_environment.stdout), said);
}

#[test]
fn a_check_lists_routes_in_their_order_and_names_the_lines_of_doubtful_ones() {
    let folder = Folder::new("check-routes");
    folder.write("public/index.html", "hello");
    let file = folder.write(
        "encke.toml",
        "[[upstream]]\nname = \"app\"\nto = [\"http://127.0.0.1:3000\", \"http://app.invalid:3000\"]\n\
         [[site]]\nroot = \"public\"\n[[site.route]]\nupstream = \"app\"\nfiles = \"first\"\n\
         [[site.route]]\npattern = \"/old/**\"\nrewrite = \"/admin/$1\"\n\
         [[site.route]]\npattern = \"/p/**\"\ninternal = true\n\
         [[access]]\npattern = \"/admin/**\"\ndeny = [\"192.0.2.1\"]\n",
    );
    let output = run(&["check", &file]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let routes: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("  route   ")).collect();
    let files_first = "/** → files, then app (http://127.0.0.1:3000, http://app.invalid:3000)";
    assert_eq!(
        routes,
        ["/p/** → files, only by X-Accel-Redirect", "/old/** → files, as /admin/$1", files_first]
    );
    let warnings = text(&output.stderr);
    assert!(warnings.contains(&format!("warning: {file}:11:1: this route leads to /admin/**")), "{warnings}");
    assert!(warnings.contains(&format!("warning: {file}:3:")), "{warnings}");
    assert!(warnings.contains("http://app.invalid:3000 has no address at present"), "{warnings}");
}

#[test]
fn a_wrong_settings_file_is_told_line_by_line_with_what_was_meant() {
    let folder = Folder::new("check-wrong");
    let file = folder.write("encke.toml", "[server]\nlissen = \"8080\"\n\n[limits]\nhead_time = 10\n");
    for command in ["check", "serve"] {
        let output = encke().args([command, "check"]).env("ENCKE_CONFIG", &file).output().expect("it starts");
        let output = if command == "check" { run(&["check", &file]) } else { output };
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(
            text(&output.stderr),
            format!(
                "error: unknown key `lissen` in [server]\n  --> {file}:2:1\n   |\n 2 | lissen = \"8080\"\n   | ^^^^^^ \
                 did you mean `listen`?\n\nerror: limits.head_time: `10` has no unit; write 10s for seconds, 10ms \
                 for milliseconds\n  --> {file}:5:13\n   |\n 5 | head_time = 10\n   |             ^^\n"
            )
        );
    }
}

#[test]
fn what_a_settings_file_names_must_be_there() {
    let folder = Folder::new("check-missing");
    let file = folder.write("encke.toml", "[[site]]\nroot = \"nowhere\"\n");
    let secret = folder.write("secret.toml", "[server]\nadmin = { token = { file = \"nowhere\" } }\n");
    folder.write("users", "ann:$apr1$YRL2IQfF$gpye1AWHc8cye0gBd5.No1\n");
    let users = folder.write("users.toml", "[[access]]\npasswords = \"users\"\n");
    let no_users = folder.write("no-users.toml", "[[access]]\npasswords = \"nowhere\"\n");
    for (file, said) in [
        (folder.path("absent.toml"), "absent.toml: No such file"),
        (
            users,
            "users:1: the password of \"ann\" is stored with $apr1$ (MD5): replace it with `htpasswd -B ",
        ),
        (no_users, "nowhere: No such file or directory (os error 2): create it with `htpasswd -cB "),
        (file, "nowhere"),
        (secret, "secret.toml:2:11: server.admin.token: secret file"),
    ] {
        let output = run(&["check", &file]);
        assert_eq!(output.status.code(), Some(1), "{file}");
        let error = text(&output.stderr);
        assert!(error.starts_with("error: ") && error.contains(said), "{error}");
    }
}

#[test]
fn an_error_in_a_file_that_the_settings_name_has_the_place_of_its_key() {
    let folder = Folder::new("check-files");
    folder.write("public/index.html", "hello");
    folder.write("a.pem", "no certificate");
    folder.write("short", "0123");
    let cases = [
        ("[[site]]\nhost = [\"a\"]\nroot = \"nowhere\"", ":3:1: site a: root: "),
        ("[log]\naccess = \"nowhere/access.log\"", ":2:1: log.access: cannot create "),
        ("[log]\naccess = \"public\"", ":2:1: log.access: "),
        (
            "[[site]]\nroot = \"public\"\naccess_log = \"nowhere/access.log\"",
            ":3:1: site.access_log: cannot create ",
        ),
        ("[server]\nlisten = { address = 0, tls = { cert = \"a.pem\", key = \"a.pem\" } }", ":2:33: tls: "),
        (
            "[server]\nlisten = [0, { address = 1, tls = { cert = \"none.pem\", key = \"a.pem\" } }]",
            ":2:37: tls: ",
        ),
        ("[auth]\nkeys = [{ secret = { file = \"short\" } }]", ":2:9: auth.keys, number 1: "),
        ("[auth]\njwks = \"none.json\"", ":2:1: auth.jwks: "),
        (
            "[auth]\ntokens = [{ token = { file = \"none\" }, publish = [\"a\"] }]",
            ":2:11: auth.tokens, number 1: ",
        ),
        ("[push]\norigins = [\"*\"]\n[auth]\ncookie = \"session\"", ":2:1: push.origins = "),
    ];
    for (settings, said) in cases {
        let file = folder.write("encke.toml", &format!("{settings}\n"));
        for command in ["check", "serve"] {
            let mut words = vec![command];
            if command == "serve" {
                words.extend(["--admin", "off", "-c"]);
            }
            words.push(&file);
            let output = run(&words);
            let error = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{command} {settings}: {error}");
            let line = error.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
            assert!(line.starts_with(&format!("error: {file}{said}")), "{command} {settings}: {error}");
        }
    }
    // An origin needs no other file, so that the error quotes the line.
    let file = folder.write("encke.toml", "[push]\norigins = [\"https://a\", \"example.org\"]\n");
    let error = text(&run(&["check", &file]).stderr);
    assert!(error.contains("invalid origin `example.org`") && error.contains("encke.toml:2:25"), "{error}");
}

#[test]
fn check_creates_no_file() {
    let folder = Folder::new("check-creates");
    folder.write("public/index.html", "hello");
    let file = folder.write(
        "encke.toml",
        "[server]\nstate_dir = \"state\"\n[log]\naccess = \"access.log\"\n[[site]]\nroot = \"public\"\n",
    );
    let output = run(&["check", &file]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for name in ["access.log", "state"] {
        assert!(!std::fs::exists(folder.path(name)).expect("readable"), "{name} was created");
    }
}

#[test]
fn a_reader_that_goes_away_ends_the_output_quietly() {
    for arguments in [&["schema"][..], &["man"], &["completions", "bash"], &["-h"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let child = encke().args(arguments).stdout(writer).stderr(Stdio::piped()).spawn().expect("it starts");
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
    }
}

#[test]
fn the_schema_is_json_and_the_reference_page_is_up_to_date() {
    let schema: serde_json::Value = serde_json::from_slice(&run(&["schema"]).stdout).expect("JSON");
    assert_eq!(schema["properties"]["server"]["$ref"], "#/$defs/ServerSettings");
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
    let kept = std::fs::read_to_string(page).expect("docs/settings.md");
    let made = text(&run(&["schema", "--markdown"]).stdout);
    assert!(kept == made, "docs/settings.md is old: cargo run -- schema --markdown > docs/settings.md");
}

#[test]
fn the_packaged_settings_are_generated_and_every_line_of_them_works() {
    let packaged = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/encke.toml");
    let kept = std::fs::read_to_string(packaged).expect("dist/encke.toml");
    let made = text(&run(&["schema", "--toml"]).stdout);
    assert!(kept == made, "dist/encke.toml is old: cargo run -- schema --toml > dist/encke.toml");
    // `#key = value` is a setting to uncomment, `# text` is text.
    let folder = Folder::new("packaged");
    folder.write("srv/encke/index.html", "hello");
    let on: String = kept
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(setting) if !setting.starts_with([' ', '#']) && !setting.is_empty() => {
                format!("{setting}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    for content in [&kept, &on] {
        let content = content.replace("/srv/encke", &folder.path("srv/encke"));
        let file = folder.write("encke.toml", &content.replace("/var/log/encke", &folder.path("srv")));
        let output = run(&["check", &file]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(text(&output.stdout).starts_with(&format!("{file} is valid")), "{}", text(&output.stdout));
    }
    let content = kept.replace("/srv/encke", &folder.path("srv/encke"));
    let file = folder.write("encke.toml", &content.replace("/var/log/encke", &folder.path("srv")));
    assert_eq!(text(&run(&["check", &file]).stderr), "", "the packaged file has no warnings");
}

#[test]
fn warnings_have_a_place_and_do_not_change_the_exit_status() {
    let folder = Folder::new("warnings");
    folder.write("public/index.html", "hello");
    let file = folder.write(
        "encke.toml",
        "[server]\nlisten = { address = \"127.0.0.1:0\", redirect = \"https\" }\nadmin = \"off\"\n\
         [[site]]\nroot = \"public\"\nerrors = { 404 = \"/404.html\" }\n[push]\nretry = \"1s\"\n",
    );
    let output = run(&["check", &file]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).starts_with(&format!("{file} is valid, with 3 warnings.\n")));
    let said = text(&output.stderr);
    let warnings: Vec<&str> = said.lines().collect();
    let places = [":2:1: 127.0.0.1:0 redirects to https", ":6:12: site.errors: ", ":7:2: no client may use"];
    for (warning, place) in warnings.iter().zip(places) {
        assert!(warning.starts_with(&format!("warning: {file}{place}")), "{said}");
    }
    assert_eq!(warnings.len(), places.len(), "{said}");
    // A server prints them at its start, as log lines.
    let mut server = Running::start_command(encke().args(["serve", "-c", &file]));
    for place in places {
        server.error_with(&format!("warning: {file}{place}"));
    }
}

#[test]
fn settings_for_containers_are_good_and_end_in_the_time_that_they_are_given() {
    let dist = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist");
    let folder = Folder::new("containers");
    folder.write("password", "secret");
    folder.write("srv/encke/index.html", "hello");
    for (settings, container, grace) in [
        ("compose/encke.toml", "compose/compose.yaml", "stop_grace_period: "),
        ("kubernetes/encke.toml", "kubernetes/encke.yaml", "terminationGracePeriodSeconds: "),
    ] {
        let kept = std::fs::read_to_string(format!("{dist}/{settings}")).expect(settings);
        let mine = kept.replace("/srv/encke", &folder.path("srv/encke"));
        let mine = mine.replace("/run/secrets/nats/password", &folder.path("password"));
        let file = folder.write("encke.toml", &mine);
        let output = encke().args(["check", &file]).env("ENCKE_NATS_PASSWORD", "secret").output();
        let output = output.expect("the program starts");
        assert_eq!(output.status.code(), Some(0), "{settings}: {}", text(&output.stderr));

        let container = std::fs::read_to_string(format!("{dist}/{container}")).expect(container);
        let seconds = |text: &str, name: &str| -> u32 {
            let value = text.lines().find_map(|line| line.trim().strip_prefix(name)).expect(name);
            value.trim_matches('"').trim_end_matches('s').parse().expect(name)
        };
        let drained = seconds(&kept, "drain_delay = ") + seconds(&kept, "drain_time = ");
        assert!(drained + 5 <= seconds(&container, grace), "{settings}: {drained} s, and a moment to end");
    }
}

#[test]
fn completions_and_man_pages_are_made_for_all() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = text(&run(&["completions", shell]).stdout);
        assert!(script.contains("backlog"), "{shell}: {script}");
    }
    assert!(text(&run(&["man"]).stdout).contains(".TH encke 1"));
    for command in COMMANDS {
        let page = text(&run(&["man", command]).stdout);
        assert!(page.contains(&format!(".TH encke-{command} 1")), "{page}");
    }
}

#[test]
fn bash_takes_its_completions() {
    let script = run(&["completions", "bash"]).stdout;
    let folder = Folder::new("bash");
    let file = folder.write("encke.bash", &text(&script));
    let checked =
        Command::new("bash").args(["-n", &file]).status().expect("bash is on every machine of ours");
    assert!(checked.success());
}
