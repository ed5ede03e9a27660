//! `include`: files that belong to the settings file.

use std::fs;

use super::*;

/// A directory with settings files, removed at the end.
struct Files(PathBuf);

impl Files {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let folder = std::env::temp_dir().join(format!("encke-include-{name}-{}", std::process::id()));
        let _from_a_killed_run = fs::remove_dir_all(&folder);
        let files_of_test = Self(folder);
        files.iter().for_each(|(file, text)| files_of_test.write(file, text));
        files_of_test
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().expect("below the directory")).expect("a temporary directory");
        fs::write(path, text).expect("a temporary file");
    }

    fn read(&self) -> Result<Settings, SettingsError> {
        Settings::read(&self.0.join("encke.toml"))
    }

    fn good(&self) -> Settings {
        self.read().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The error, with names relative to the directory.
    fn refused(&self) -> String {
        let error = self.read().expect_err("these settings are invalid").to_string();
        error.replace(&self.0.join("").display().to_string(), "")
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _best_effort = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn included_files_add_their_sections_in_the_order_of_their_names() {
    let files = Files::new(
        "good",
        &[
            ("encke.toml", "include = \"sites/*.toml\"\n[limits]\nfields = 7\n[[site]]\nroot = \"main\"\n"),
            ("sites/b.toml", "[[site]]\nhost = [\"b\"]\nroot = \"b\"\n[limits]\nidle_time = \"7s\"\n"),
            (
                "sites/a.toml",
                "# a\n\n[[site]]\nhost = [\"a\"]\nroot = \"/a\"\n[[push.channel]]\nmessages = 3\n",
            ),
            ("sites/.hidden.toml", "this is not TOML"),
            ("sites/a.toml~", "this is not TOML"),
        ],
    );
    let settings = files.good();
    let roots: Vec<_> = settings.site.iter().map(|site| site.root.clone()).collect();
    // Relative paths start at the directory of the settings file, in included files too.
    assert_eq!(roots, ["main", "/a", "b"].map(|root| files.0.join(root)));
    assert_eq!((settings.limits.fields, settings.limits.idle_time), (7, Period::seconds(7)));
    assert_eq!(settings.push.channel.len(), 1);
    assert_eq!(settings.included, [files.0.join("sites/a.toml"), files.0.join("sites/b.toml")]);
    assert_eq!(settings.notes, [""; 0]);
    let line = |path: &[&str]| settings.source.line(path).expect("in a file").to_string();
    let shown = |name: &str| files.0.join(name).display().to_string();
    assert_eq!(line(&["site", "0", "root"]), shown("encke.toml:5"));
    assert_eq!(line(&["site", "1", "host"]), shown("sites/a.toml:4"));
    assert_eq!(settings.source.section("site").line(&["2", "root"]).map(|found| found.line), Some(3));
    assert_eq!(line(&["limits", "idle_time"]), shown("sites/b.toml:5"));
}

#[test]
fn files_are_included_by_a_list_of_names_and_patterns_each_once() {
    let files = Files::new(
        "list",
        &[
            ("encke.toml", "include = [\"b.toml\", \"?.toml\", \"conf/x.toml\"]\n"),
            ("a.toml", "[limits]\nfields = 3\n"),
            ("b.toml", "[[site]]\n"),
            ("conf/x.toml", "[log]\nlevel = \"warn\"\n"),
        ],
    );
    let settings = files.good();
    assert_eq!(settings.included, ["b.toml", "a.toml", "conf/x.toml"].map(|name| files.0.join(name)));
    assert_eq!((settings.site.len(), settings.limits.fields, settings.log.level), (1, 3, Level::Warn));
}

#[test]
fn an_error_in_an_included_file_has_its_place_there() {
    let files = Files::new(
        "wrong",
        &[
            ("encke.toml", "include = \"sites/*.toml\"\n[limits]\nhead_time = 10\n"),
            ("sites/a.toml", "[[site]]\n  lst = true\n"),
            ("sites/b.toml", "[[site]]\nindex = [\"a\n"),
        ],
    );
    let told = files.refused();
    let places: Vec<&str> = told.lines().filter_map(|line| line.trim().strip_prefix("--> ")).collect();
    assert_eq!(places[..2], ["encke.toml:3:13", "sites/a.toml:2:3"], "{told}");
    assert!(
        places[2..].iter().all(|place| place.starts_with("sites/b.toml:2:")) && places.len() > 2,
        "{told}"
    );
    assert!(told.contains(" 2 |   lst = true\n   |   ^^^ did you mean `list`?"), "{told}");

    // A contradiction is found once all values are valid.
    files.write("encke.toml", "include = \"sites/*.toml\"\n");
    files.write("sites/a.toml", "[[site]]\n");
    files.write("sites/b.toml", "[[site]]\nindex = [\"a/b\"]\n");
    let told = files.refused();
    assert!(told.contains("sites/b.toml:2:9\n") && told.contains("site.index: `a/b`"), "{told}");
}

#[test]
fn a_key_in_two_files_is_an_error_that_names_both_places() {
    for (main, other, place, said) in [
        (
            "[limits]\nfields = 3\n",
            "\n[limits]\nfields = 4\n",
            "other.toml:3:1",
            "`limits.fields` is set in two files",
        ),
        (
            "[server]\nadmin = { metrics = \"open\" }\n",
            "[server.admin]\naddress = 9000\n",
            "other.toml:1:9",
            "`server.admin`",
        ),
        ("[server]\nlisten = [80]\n", "[server]\nlisten = [81]\n", "other.toml:2:1", "`server.listen`"),
        ("[[site]]\n", "site = [{ root = \"a\" }]\n", "other.toml:1:1", "`site`"),
        ("[log]\n", "[[log]]\n", "other.toml:1:3", "`log`"),
    ] {
        let files = Files::new(
            "twice",
            &[("encke.toml", &format!("include = \"other.toml\"\n{main}")), ("other.toml", other)],
        );
        let told = files.refused();
        assert!(told.contains(said) && told.contains(&format!("--> {place}\n")), "{main}: {told}");
        assert!(told.contains("first set at encke.toml:"), "{main}: {told}");
    }
    let files = Files::new(
        "twice",
        &[
            ("encke.toml", "include = \"other.toml\"\n[limits]\nfields = 3\n"),
            ("other.toml", "[limits]\nfields = 4\n"),
        ],
    );
    assert!(files.refused().contains("^^^^^^ first set at encke.toml:3:1\n"), "{}", files.refused());
}

#[test]
fn an_included_file_includes_no_others() {
    let files = Files::new(
        "nested",
        &[("encke.toml", "include = \"a.toml\"\n"), ("a.toml", "include = \"b.toml\"\n"), ("b.toml", "")],
    );
    let told = files.refused();
    assert!(told.contains("an included file cannot include others\n  --> a.toml:1:1\n"), "{told}");
    assert!(told.contains("add the file to `include` in encke.toml"), "{told}");
}

#[test]
fn a_pattern_without_a_file_is_a_warning_and_a_missing_name_an_error() {
    let files = Files::new("none", &[("encke.toml", "\ninclude = \"sites/*.toml\"\n")]);
    let file = files.0.join("encke.toml");
    let note = format!("{}:2: include = \"sites/*.toml\" matches no file", file.display());
    assert_eq!(files.good().notes, [note]);
    fs::create_dir(files.0.join("sites")).expect("a directory");
    assert_eq!(files.good().notes.len(), 1);
    fs::create_dir(files.0.join("sites/directory.toml")).expect("a directory");
    let told = files.refused();
    assert!(told.contains("sites/directory.toml: not a file"), "{told}");
    for (include, place, said) in [
        ("\"sites/a.toml\"", "1:11", "cannot include sites/a.toml: "),
        ("[\"absent.toml\", \"*/a.toml\"]", "1:12", "cannot include absent.toml: "),
        ("[\"absent.toml\", \"*/a.toml\"]", "1:27", "not of a directory's"),
        ("\"*.toml\"", "1:11", "the pattern matches this file itself"),
        ("\"sites/\"", "1:11", "include needs the name of a file"),
        (
            "5",
            "1:11",
            "include: expected the name of a file in quotes, or a list of names: [ … ], found the number 5",
        ),
    ] {
        files.write("encke.toml", &format!("include = {include}\n"));
        let told = files.refused();
        assert!(told.contains(said) && told.contains(&format!("encke.toml:{place}\n")), "{include}: {told}");
    }
}

#[test]
fn an_include_in_a_section_is_sent_to_the_top() {
    let told = Settings::parse("encke.toml", "[server]\ninclude = \"a.toml\"\n").expect_err("in a section");
    assert!(
        told.to_string().contains("`include` belongs at the top of the file, above all sections"),
        "{told}"
    );
}

#[test]
fn the_number_and_size_of_included_files_are_limited() {
    let files = Files::new("many", &[("encke.toml", "include = \"sites/*.toml\"\n")]);
    for number in 0..1_000 {
        files.write(&format!("sites/{number}.toml"), "");
    }
    assert_eq!(files.good().included.len(), 1_000);
    files.write("sites/more.toml", "");
    assert!(files.refused().contains("more than 1000 included files"), "{}", files.refused());

    let files = Files::new("large", &[("encke.toml", "include = [\"a.toml\", \"b.toml\"]\n")]);
    files.write("a.toml", &"#".repeat(600_000));
    files.write("b.toml", &"#".repeat(400_000));
    assert_eq!(files.good().included.len(), 2);
    files.write("b.toml", &"#".repeat(448_577));
    let told = files.refused();
    assert!(told.contains("the settings are larger than 1 MiB with b.toml"), "{told}");
}

#[test]
fn included_files_are_never_served() {
    let files = Files::new(
        "served",
        &[
            ("encke.toml", "include = \"a.toml\"\n[[site]]\nroot = \".\"\n"),
            ("a.toml", "[limits]\nfields = 3\n"),
        ],
    );
    let forbidden = crate::service::never_served(&files.good());
    let folder = files.0.canonicalize().expect("it exists");
    for name in
        ["encke.toml", "a.toml", ".encke.toml.encke-new", ".encke.toml.encke-old", ".encke.toml.history"]
    {
        let path = folder.join(name);
        let is_there = |other: &std::path::PathBuf| {
            *other == path || other.canonicalize().is_ok_and(|other| other == path)
        };
        assert!(forbidden.iter().any(is_there), "{name}");
    }
}
