//! Settings files that documents show: `encke check` accepts them.

use std::fs;
use std::path::Path;

use crate::running::{Folder, encke, text};

/// Documents with settings files for readers to copy, from the root of the repository.
const PAGES: &[&str] = &[
    "README.md",
    "docs/deploy.md",
    "docs/from-caddy.md",
    "docs/from-centrifugo.md",
    "docs/from-nchan.md",
    "docs/from-nginx.md",
    "docs/guide.md",
    "docs/streams.md",
];

#[test]
fn settings_files_in_documents_are_valid() {
    let folder = Folder::new("documents");
    folder.write("public/index.html", "hello");
    folder.write("jwt.secret", &"5e".repeat(32));
    folder.write("publisher.token", &"5e".repeat(16));
    folder.write("node-b.token", &"5f".repeat(16));
    let authority = rcgen::generate_simple_self_signed(vec!["node-a".into()]).expect("a certificate");
    folder.write("node-a.pem", &authority.cert.pem());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut checked = 0;
    for page in PAGES {
        let document = fs::read_to_string(root.join(page)).expect("the document exists");
        for settings in settings_files(&document) {
            // `check` tests the directory of the log.
            let settings = settings.replace("/var/log/encke", &folder.path("public"));
            let output = encke().args(["check", &folder.write("encke.toml", &settings)]).output();
            let output = output.expect("it starts");
            assert!(output.status.success(), "{page}:\n{settings}\n{}", text(&output.stderr));
            checked += 1;
        }
    }
    assert!(checked >= 6, "{checked}");
}

/// Returns the TOML blocks whose first line names a settings file.
fn settings_files(document: &str) -> impl Iterator<Item = &str> {
    let blocks = document.split("\n```toml\n").skip(1).filter_map(|rest| rest.split("\n```").next());
    blocks.filter(|block| block.starts_with("# encke.toml\n"))
}
