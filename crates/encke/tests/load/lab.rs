//! `encke lab`: its output, its files and its exit. The measured times are not tested.

use std::io::{BufRead as _, BufReader};
use std::process::{Output, Stdio};

use crate::running::{Folder, encke, text};
use encke_io::host::{Signal, send_signal};
use serde_json::Value;

fn run(arguments: &[&str]) -> Output {
    run_where("C", arguments)
}

/// Runs `encke lab` with a locale.
fn run_where(locale: &str, arguments: &[&str]) -> Output {
    let program = &mut encke();
    let output =
        program.env("LC_ALL", locale).arg("lab").args(arguments).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    output
}

#[test]
fn the_table_says_what_was_done_and_each_claim_with_its_figure() {
    let said = text(&run(&["trigger", "ring", "--quick", "--seed", "7"]).stdout);
    assert!(said.contains("seed 7\n"), "{said}");
    assert!(said.contains("ring: The gain of a mask") && said.contains("trigger: Level and edge"), "{said}");
    assert!(said.contains("aa | bb | cc | -  dd | - | - | -"), "{said}");
    assert!(said.contains("    seen  Edge reports once; when dd arrives, the program reads bb."), "{said}");
    assert!(said.find("ring:") < said.find("trigger:"), "in the order of the list:\n{said}");
}

#[test]
fn what_is_explained_comes_before_what_is_seen() {
    let said = text(&run(&["trigger", "--quick", "--explain"]).stdout);
    let (question, seen) = (said.find("What does a program see"), said.find("    seen  "));
    assert!(question.is_some() && question < seen, "{said}");
}

#[test]
fn json_and_csv_have_every_cell() {
    let output = run(&["ring", "--quick", "--json", "--seed", "7"]);
    let all: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!((&all["schema"], &all["seed"]), (&1.into(), &"7".into()));
    let cells = all["experiments"][0]["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 8);
    for cell in cells {
        let [low, median, high] = ["low", "median", "high"].map(|end| cell["cpu_ns"][end].as_f64());
        assert!(low.is_some() && low <= median && median <= high, "{cell}");
        assert!(
            ["baseline", "differs", "no difference seen"].map(Value::from).contains(&cell["verdict"]),
            "{cell}"
        );
    }
    let csv = text(&run(&["ring", "--quick", "--csv"]).stdout);
    assert_eq!(csv.lines().count(), 9, "a head and eight cells:\n{csv}");
    let columns = csv.lines().next().map(|line| line.split(',').count());
    assert!(csv.lines().all(|line| Some(line.split(',').count()) == columns), "{csv}");
}

#[test]
fn the_page_has_a_plot_a_table_and_the_claims() {
    let folder = Folder::new("lab-report");
    let file = folder.write("lab.html", "");
    run(&["ring", "--quick", "--report", &file]);
    let page = std::fs::read_to_string(&file).expect("it was written");
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    assert_eq!((page.matches("<svg").count(), page.matches("<table>").count()), (2, 1), "{page}");
    assert_eq!(page.matches("<li><b>").count(), 3, "{page}");
}

/// Results of two machines side by side, named after their files.
#[test]
fn what_several_machines_have_saved_is_merged() {
    let folder = Folder::new("lab-merge");
    let saved: Vec<String> = [("ada", "1"), ("bob", "2")]
        .map(|(name, seed)| {
            let json = text(&run(&["ring", "--quick", "--json", "--seed", seed]).stdout);
            folder.write(&format!("{name}.json"), &json)
        })
        .into();
    let page = folder.write("class.html", "");

    let said = text(&run(&["merge", &saved[0], &saved[1], "--report", &page]).stdout);
    let machines: Vec<&str> = said.lines().take(2).collect();
    assert!(machines[0].starts_with("ada: ") && machines[1].starts_with("bob: "), "{said}");
    let lines =
        |name: &str| said.lines().filter(|line| line.split_whitespace().any(|word| word == name)).count();
    // Two loads, and the findings for the claims.
    assert_eq!((lines("ada"), lines("bob")), (3, 3), "{said}");
    let page = std::fs::read_to_string(&page).expect("it was written");
    assert!(
        page.starts_with("<!doctype html>") && page.contains(">ada<") && page.contains(">bob<"),
        "{page}"
    );

    let csv = text(&run(&["merge", &saved[0], &saved[1], "--csv"]).stdout);
    assert_eq!(csv.lines().count(), 1 + 2 * 8, "a head, and eight cells of each:\n{csv}");
    let said = text(&run_where("ja_JP.UTF-8", &["merge", &saved[0]]).stdout);
    assert!(said.contains("マスク"), "in a language: {said}");
}

#[test]
fn what_is_no_result_of_the_laboratory_is_not_merged() {
    let folder = Folder::new("lab-no-merge");
    for (content, why) in [
        ("{}", "not an output of `encke lab --json`"),
        (
            r#"{"schema":9,"date":"","machine":{"processor":"","processors":1,"system":"","encke":"","optimised":true},"experiments":[]}"#,
            "it has schema 9",
        ),
    ] {
        let file = folder.write("odd.json", content);
        let output = encke().args(["lab", "merge", &file]).output().expect("the program starts");
        assert_eq!(output.status.code(), Some(1));
        let said = text(&output.stderr);
        assert!(said.contains("odd.json: ") && said.contains(why), "{said}");
    }
}

/// Tables and pages use the language of the locale or the flag; JSON uses none.
#[test]
fn tables_and_pages_are_in_a_language_and_json_is_not() {
    let said = text(&run_where("ja_JP.UTF-8", &["trigger", "--quick", "--explain"]).stdout);
    assert!(said.contains("trigger: レベルトリガーとエッジトリガー"), "{said}");
    assert!(
        said.contains("見られた  エッジは一度だけ報告する。") && said.contains("エッジ、読み切る"),
        "{said}"
    );

    let folder = Folder::new("lab-language");
    let file = folder.write("lab.html", "");
    let arguments = ["trigger", "--quick", "--json", "--lang", "zh-Hant", "--report", &file];
    let all: Value = serde_json::from_slice(&run(&arguments).stdout).expect("it is JSON");
    assert_eq!(all["experiments"][0]["cells"][0]["row"], "level, 2 bytes a turn");
    let page = std::fs::read_to_string(&file).expect("it was written");
    assert!(page.contains("<html lang=\"zh-Hant\">") && page.contains("水平觸發與邊緣觸發"), "{page}");
    assert!(page.contains("<th>邊緣，每回合 2 位元組</th>") && !page.contains("edge, 2 bytes"), "{page}");

    let list = text(&run(&["--list", "--lang", "zh-Hant"]).stdout);
    assert!(list.contains("trigger   水平觸發與邊緣觸發\n"), "{list}");
}

/// No server under test outlives the lab, however that ends.
#[test]
fn the_server_under_test_ends_with_its_input() {
    let mut child = encke();
    child.args(["lab", "--under-test", "50"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = child.spawn().expect("the program starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
    let address = lines.next().expect("a line").expect("text");
    std::net::TcpStream::connect(&address).expect(&address);
    drop(child.stdin.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn a_signal_ends_the_lab_with_its_results_and_130() {
    for signal in [Signal::Interrupt, Signal::HangUp] {
        let folder = Folder::new("lab-signal");
        let page = folder.path("page.html");
        let arguments = ["lab", "all", "--lang", "en", "--report", &page];
        let mut child = encke().args(arguments).stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
        // The head is printed before the first experiment starts.
        let head = lines.next().expect("a line").expect("text");
        assert!(head.contains("seed "), "{head}");
        // The page is written although standard output has no reader.
        drop(lines);
        send_signal(child.id(), signal).expect("it lives");
        assert_eq!(child.wait().expect("it ends").code(), Some(130), "{signal:?}");
        assert!(folder.read("page.html").contains("</html>"), "{signal:?}");
    }
}
