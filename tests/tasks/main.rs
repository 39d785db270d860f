//! Task lists: `ralph new`, `ralph tasks`, `ralph work`, `ralph archive`.

#[path = "../support/mod.rs"]
mod support;

mod archive;
mod ledger;
mod new;
mod planted_files;
mod restart;
mod stories;
mod work;

use serde_json::{Value, json};
use support::Project;

fn open(id: &str, more: &Value) -> Value {
    let mut story = json!({
        "id": id, "title": format!("Title of {id}"), "description": "",
        "acceptanceCriteria": ["it works"], "priority": 1, "passes": false, "notes": "", "dependsOn": [],
    });
    for (key, value) in more.as_object().expect("fields") {
        story[key] = value.clone();
    }
    story
}

fn passing(id: &str) -> Value {
    open(id, &json!({"passes": true, "notes": "done"}))
}

fn list(stories: &[Value]) -> Value {
    json!({
        "project": "Shop", "branchName": "ralph/shop", "description": "Prices.",
        "verifyCommands": [], "userStories": stories,
    })
}

fn write_list(project: &Project, list: &Value) {
    project.write("ralph/tasks.json", format!("{list:#}\n"));
}

fn read_list(project: &Project) -> Value {
    serde_json::from_str(&project.read("ralph/tasks.json")).expect("JSON")
}
