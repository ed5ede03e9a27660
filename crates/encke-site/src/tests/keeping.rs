//! Files that the cache keeps, and for how long.

use super::*;

#[test]
fn without_notices_a_file_is_looked_at_again_after_the_time_that_is_set() {
    let scene = Scene::new("deaf");
    scene.write("a.txt", "one");
    let mut stage = Stage::deaf(&scene, "open_files = { revalidate = \"5s\" }");
    assert_eq!(stage.get("/a.txt").text(), "one");
    assert_eq!(stage.get("/b.txt").status, 404);
    scene.write("a.txt", "two");
    scene.write("b.txt", "new");
    stage.pass(Duration::from_millis(4_999));
    assert_eq!(stage.get("/a.txt").text(), "one", "this much staleness is allowed");
    assert_eq!(stage.get("/b.txt").status, 404);
    stage.pass(Duration::from_millis(1));
    assert_eq!(stage.get("/a.txt").text(), "two");
    assert_eq!(stage.get("/b.txt").text(), "new");
}

#[test]
fn an_answer_that_has_begun_is_of_the_file_it_began_with() {
    let scene = Scene::new("begun");
    scene.write("a.bin", vec![1; 50_000]);
    scene.write("b.bin", vec![2; 50_000]);
    let mut stage = Stage::new(&scene, "");
    let begun = stage.ready("/a.bin");
    if cfg!(windows) {
        // Only since version 1607 an open file can be replaced.
        std::fs::rename(scene.path("a.bin"), scene.path("old.bin")).expect("renamed");
    }
    std::fs::rename(scene.path("b.bin"), scene.path("a.bin")).expect("renamed");
    stage.notice();
    assert_eq!(stage.get("/a.bin").body, vec![2; 50_000]);
    assert_eq!(answer(Reply::prepared(begun)).body, vec![1; 50_000]);
}

#[test]
fn descriptors_are_given_back_when_they_are_short() {
    let scene = Scene::new("shrink");
    scene.write("a.bin", vec![1; 50_000]);
    let mut stage = Stage::new(&scene, "");
    let prepared = stage.ready("/a.bin");
    assert!(Arc::strong_count(&prepared) >= 2, "the shelf has it, too");
    stage.handler().shrink();
    assert_eq!(Arc::strong_count(&prepared), 1, "the shelf has let go of it");
    assert_eq!(stage.get("/a.bin").status, 200);
}

#[test]
fn no_more_files_are_kept_open_than_is_set() {
    let scene = Scene::new("count");
    for number in 0..20 {
        scene.write(&format!("{number}.bin"), vec![1; 10_000]);
    }
    let mut stage = Stage::new(&scene, "open_files = { count = 4 }");
    let mut held = Vec::new();
    for number in 0..20 {
        held.push(stage.ready(&format!("/{number}.bin")));
    }
    let kept = held.iter().filter(|prepared| Arc::strong_count(prepared) > 1).count();
    assert_eq!(kept, 4);
}
