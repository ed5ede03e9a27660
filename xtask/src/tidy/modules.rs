//! The modules of a crate, and which file imports from which: the graph that the rules about cycles read.
//!
//! ```text
//! shipped lines ─► tokens ─► modules, imports, paths ─► resolved through re-exports ─► edges between files
//! ```
//! An import is a path that begins with `crate`, `self`, `super`, a child module or an imported name, in a `use` or anywhere
//! else. It leads to the file that declares the item: `use crate::Level` leads to `settings.rs` if `lib.rs` only re-exports
//! `Level`. A re-export alone is no import. Names that only a glob import brings into scope are not followed.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::Tree;

/// The path of a module from the root of its crate.
type ModulePath = Vec<String>;

/// The files of a crate, and their imports.
pub(super) struct Graph {
    /// The shipped files, sorted by path.
    pub(super) files: Vec<CrateFile>,
    /// Edges from the importing to the imported file, as indices of `files`.
    pub(super) edges: BTreeSet<(usize, usize)>,
}

/// A file of a crate.
pub(super) struct CrateFile {
    /// The path in the repository.
    pub(super) path: String,
    /// The directory that contains the file, without a trailing slash. `push.rs` belongs to `push` if that directory exists.
    pub(super) directory: String,
    /// Whether the file is the module of its directory: `lib.rs`, `main.rs`, `mod.rs`, or `push.rs` next to `push/`.
    pub(super) facade: bool,
}

/// A module, either a file or inline.
#[derive(Default)]
struct Module {
    file: usize,
    /// Names that a `use` of this module brings into scope, with their paths. `cfg` twins share a name.
    imports: BTreeMap<String, Vec<ModulePath>>,
}

/// A path that occurs in a file.
struct Mention {
    /// The module that contains the path.
    within: ModulePath,
    path: ModulePath,
    file: usize,
    /// The name of a re-export.
    reexported_as: Option<String>,
}

impl Graph {
    /// Builds the graph of the sources below `folder`, such as `crates/encke-io/src/`.
    pub(super) fn of(tree: &Tree, folder: &str) -> Self {
        let sources = tree.sources().filter(|(path, _)| path.starts_with(folder));
        // Test files have no shipped lines, and are not in the graph.
        let sources = sources.filter(|(_, source)| source.shipped().next().is_some());
        let codes: Vec<(&str, String)> = sources
            .map(|(path, source)| {
                (path, source.shipped().map(|(_, line)| line.code.as_str()).collect::<Vec<_>>().join("\n"))
            })
            .collect();

        let mut modules: BTreeMap<ModulePath, Module> = BTreeMap::new();
        let mut reads = Vec::new();
        for (file, (path, code)) in codes.iter().enumerate() {
            let module = module_path(&path[folder.len()..]);
            modules.entry(module.clone()).or_default().file = file;
            let mut reader = ModuleReader::new(file, module, code);
            reader.read();
            for inline in &reader.inline {
                modules.entry(inline.clone()).or_default().file = file;
            }
            reads.push(reader);
        }
        for (name, mention) in reads.iter().flat_map(|reader| &reader.uses) {
            let path = absolute(&modules, mention, false);
            let (Some(path), Some(module)) = (path, modules.get_mut(&mention.within)) else { continue };
            module.imports.entry(name.clone()).or_default().push(path);
        }

        let mut edges = BTreeSet::new();
        for reader in &reads {
            let uses = reader.uses.iter().map(|(_, mention)| mention);
            for mention in uses.chain(&reader.mentions) {
                let named_only = |name: &String| !reader.words.contains(name.as_str());
                if mention.reexported_as.as_ref().is_some_and(named_only) {
                    continue;
                }
                let Some(path) = absolute(&modules, mention, true) else { continue };
                let mut found = BTreeSet::new();
                resolve(&modules, &path, 0, &mut found);
                edges.extend(found.iter().map(|&to| (mention.file, to)).filter(|(from, to)| from != to));
            }
        }
        let files = codes.iter().map(|(path, _)| CrateFile::of(tree, path)).collect();
        Self { files, edges }
    }
}

impl CrateFile {
    fn of(tree: &Tree, path: &str) -> Self {
        let own = path.trim_end_matches(".rs");
        let (directory, name) = own.rsplit_once('/').unwrap_or(("", own));
        let (directory, facade) = match name {
            "lib" | "main" | "mod" => (directory, true),
            _ if tree.has(&format!("{own}/")) => (own, true),
            _ => (directory, false),
        };
        Self { path: path.to_owned(), directory: directory.to_owned(), facade }
    }
}

/// Returns the paths that a file names, in a `use` or elsewhere, and the modules that it declares in other files. Each branch
/// of a `use` is one path.
pub(super) fn named(code: &str) -> Vec<Vec<String>> {
    let mut reader = ModuleReader::new(0, Vec::new(), code);
    reader.read();
    let declared = reader.declared.iter().map(|name| vec!["self".to_owned(), (*name).to_owned()]);
    let uses = reader.uses.into_iter().map(|(_, mention)| mention.path);
    let mut all: Vec<Vec<String>> = declared.chain(uses).collect();
    all.extend(reader.mentions.into_iter().map(|mention| mention.path));
    all
}

/// Returns the module of a file, from its path below `src/`.
fn module_path(path: &str) -> ModulePath {
    let mut parts: ModulePath = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if matches!(parts.last().map(String::as_str), Some("lib" | "main" | "mod")) {
        parts.pop();
    }
    parts
}

/// Converts a path to one from the root of the crate. Returns `None` if it leads out of the crate.
fn absolute(
    modules: &BTreeMap<ModulePath, Module>,
    mention: &Mention,
    through_imports: bool,
) -> Option<ModulePath> {
    let first = mention.path.first()?;
    let mut module = mention.within.clone();
    let mut rest = &mention.path[..];
    match first.as_str() {
        "crate" => {
            module.clear();
            rest = &rest[1..];
        }
        "self" | "super" => {
            while let Some(part @ ("self" | "super")) = rest.first().map(String::as_str) {
                if part == "super" {
                    module.pop()?;
                }
                rest = &rest[1..];
            }
        }
        name => {
            let child = [module.as_slice(), &[name.to_owned()]].concat();
            let imported =
                || through_imports && modules.get(&module).is_some_and(|one| one.imports.contains_key(name));
            if !modules.contains_key(&child) && !imported() {
                return None;
            }
        }
    }
    module.extend_from_slice(rest);
    Some(module)
}

/// Maximum number of imports followed, so that two imports of each other terminate.
const STEPS_MAX: usize = 16;

/// Adds the files that declare the item at a path from the root.
fn resolve(
    modules: &BTreeMap<ModulePath, Module>,
    path: &[String],
    steps: usize,
    found: &mut BTreeSet<usize>,
) {
    let mut end = 0;
    while end < path.len() && modules.contains_key(&path[..=end]) {
        end += 1;
    }
    let Some(module) = modules.get(&path[..end]) else { return };
    let imported = path.get(end).and_then(|name| module.imports.get(name));
    match imported.filter(|_| steps < STEPS_MAX) {
        Some(targets) => {
            for target in targets {
                resolve(modules, &[target.as_slice(), &path[end + 1..]].concat(), steps + 1, found);
            }
        }
        None => {
            found.insert(module.file);
        }
    }
}

/// The parser of one file's code.
struct ModuleReader<'a> {
    file: usize,
    tokens: Vec<&'a str>,
    at: usize,
    /// The current module, and the brace depth at which each of its inline modules began.
    module: ModulePath,
    depths: Vec<usize>,
    depth: usize,
    inline: Vec<ModulePath>,
    /// The modules that the file declares in other files.
    declared: Vec<&'a str>,
    /// The path of each `use`, by its name in this module.
    uses: Vec<(String, Mention)>,
    mentions: Vec<Mention>,
    /// Words outside of `use`.
    words: BTreeSet<&'a str>,
}

impl<'a> ModuleReader<'a> {
    fn new(file: usize, module: ModulePath, code: &'a str) -> Self {
        Self {
            file,
            tokens: tokens(code),
            at: 0,
            module,
            depths: Vec::new(),
            depth: 0,
            inline: Vec::new(),
            declared: Vec::new(),
            uses: Vec::new(),
            mentions: Vec::new(),
            words: BTreeSet::new(),
        }
    }

    fn read(&mut self) {
        while let Some(token) = self.peek(0) {
            match token {
                // `use<'a>` lists the captures of a type.
                "use" if self.peek(1) != Some("<") => self.read_use(),
                "mod" if self.peek(2) == Some("{") => self.begin_module(),
                "mod" if self.peek(2) == Some(";") => {
                    self.declared.extend(self.peek(1));
                    self.at += 3;
                }
                "{" => {
                    self.depth += 1;
                    self.at += 1;
                }
                "}" => self.end_block(),
                word if is_word(word) => self.read_path(),
                _ => self.at += 1,
            }
        }
    }

    fn peek(&self, ahead: usize) -> Option<&'a str> {
        self.tokens.get(self.at + ahead).copied()
    }

    fn begin_module(&mut self) {
        let name = self.peek(1).unwrap_or_default();
        self.module.push(name.to_owned());
        self.inline.push(self.module.clone());
        self.depths.push(self.depth);
        self.depth += 1;
        self.at += 3;
    }

    fn end_block(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.at += 1;
        if self.depths.last() == Some(&self.depth) {
            self.depths.pop();
            self.module.pop();
        }
    }

    /// Parses `a::b::c`, or a single word.
    fn read_path(&mut self) {
        let inner = self.at > 0 && self.tokens[self.at - 1] == "::";
        let mut path = Vec::new();
        while let Some(word) = self.peek(0).filter(|word| is_word(word)) {
            self.words.insert(word);
            path.push(word.to_owned());
            self.at += 1;
            if self.peek(0) != Some("::") || !self.peek(1).is_some_and(is_word) {
                break;
            }
            self.at += 1;
        }
        if path.len() > 1 && !inner {
            let mention = Mention { within: self.module.clone(), path, file: self.file, reexported_as: None };
            self.mentions.push(mention);
        }
    }

    fn read_use(&mut self) {
        let public = self.at > 0 && matches!(self.tokens[self.at - 1], "pub" | ")");
        self.at += 1;
        self.read_tree(&[], public);
    }

    /// Parses one branch of a `use` up to `,`, `}` or `;`.
    fn read_tree(&mut self, front: &[String], public: bool) {
        let mut path = front.to_vec();
        let mut alias = None;
        while let Some(token) = self.peek(0) {
            self.at += 1;
            match token {
                "::" => {}
                "{" => {
                    while self.peek(0).is_some_and(|token| token != "}") {
                        self.read_tree(&path, public);
                        if self.peek(0) == Some(",") {
                            self.at += 1;
                        }
                    }
                    self.at += 1;
                    return;
                }
                "," | "}" | ";" => {
                    self.at -= 1;
                    break;
                }
                "as" => {
                    alias = self.peek(0).map(str::to_owned);
                    self.at += 1;
                }
                // `a::{self}` names `a`.
                "self" if !path.is_empty() => {}
                token => path.push(token.to_owned()),
            }
        }
        let glob = path.last().is_some_and(|last| last == "*");
        if glob {
            path.pop();
        }
        let Some(last) = path.last() else { return };
        let name = if glob { "*".to_owned() } else { alias.unwrap_or_else(|| last.clone()) };
        let reexported_as = public.then(|| name.clone());
        let mention = Mention { within: self.module.clone(), path, file: self.file, reexported_as };
        self.uses.push((name, mention));
    }
}

fn is_word(token: &str) -> bool {
    token.starts_with(|char: char| char.is_alphabetic() || char == '_')
}

/// Splits code into words, `::`, and single characters.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let part = |char: char| char.is_alphanumeric() || char == '_';
        let len = if part(first) {
            rest.find(|char| !part(char)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let (token, behind) = rest.split_at(len);
        tokens.push(token);
        rest = behind.trim_start();
    }
    tokens
}
