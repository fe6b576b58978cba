//! The demonstration, small, and its sums checked from outside.

use crate::support::{Home, run};

#[test]
fn the_demonstration_ends_well_and_what_it_leaves_agrees_with_its_sums() {
    let dir = tempfile::tempdir().unwrap();
    let keep = dir.path().join("kept");
    let ran = run(&["demo", "--messages", "40", "--keep", keep.to_str().unwrap()]);
    let summary = ran.all().last().unwrap();
    assert_eq!(summary["event"], "summary");
    for (name, expected) in [("sent", 40), ("lost", 0), ("duplicated", 0), ("reordered", 0)] {
        assert_eq!(summary[name], expected, "{summary}");
    }
    for (name, least) in [("cuts", 5), ("reopens", 3), ("kills", 1)] {
        assert!(summary[name].as_u64().unwrap() >= least, "{summary}");
    }
    assert_eq!(summary["audit"], "clean");

    let mut to_others = 0;
    for name in ["alice", "bob", "carol"] {
        let home = Home { dir: keep.join(name), inbox: String::new() };
        home.assert_clean();
        let me = home.run("whoami", &[]).one()["inbox_id"].clone();
        let history = home.run("history", &[]);
        to_others += history
            .all()
            .iter()
            .filter(|line| line["event"] == "message" && line["sender_inbox_id"] != me)
            .count();
        assert!(home.run("status", &[]).one()["topics"].as_array().is_some_and(|all| !all.is_empty()));
    }
    assert_eq!(summary["delivered"], to_others);
}
