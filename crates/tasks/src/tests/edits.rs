use super::*;
use serde_json::Map;

const LIST: &str = r#"{
    "project": "p", "mine": [1.50, 1e3],
    "branchName": "b",
    "description": "d",
    "userStories": [
        {
            "id": "US-1", "passes": false,
            "title": "One: \"quoted\" { [",
            "extra": {"z": 1, "a": 2}
        },
        {"id": "US-2", "title": "Two", "passes": false}
    ]
}
"#;

#[test]
fn edit_changes_only_the_given_value() {
    let set =
        |changes: &[edit::FieldChange<'_>]| edit::set_in_story(LIST, "US-1", changes).unwrap();
    assert_eq!(
        set(&[("passes", json!(true))]),
        LIST.replacen("\"passes\": false", "\"passes\": true", 1)
    );
    assert_eq!(
        set(&[("notes", json!("n\nm")), ("passes", json!(true))]),
        LIST.replacen("\"passes\": false", "\"passes\": true", 1)
            .replace(r#""a": 2}"#, "\"a\": 2},\n            \"notes\": \"n\\nm\"")
    );
    assert_eq!(
        edit::set_in_story(LIST, "US-2", &[("dependsOn", json!(["US-1", "x"]))]).unwrap(),
        LIST.replacen(
            r#""title": "Two", "passes": false"#,
            r#""title": "Two", "passes": false, "dependsOn": ["US-1", "x"]"#,
            1
        )
    );
    assert_eq!(edit::set_in_story(LIST, "US-3", &[]), None);
    assert_eq!(edit::set_in_story("{", "US-1", &[]), None);
}

#[test]
fn added_story_follows_layout_of_list() {
    let story = json!({"id": "US-3", "dependsOn": ["US-1"]});
    let added = edit::add_story(LIST, &story).unwrap();
    let expected = LIST.replace(
        "\"Two\", \"passes\": false}",
        "\"Two\", \"passes\": false},\n        {\n            \"id\": \"US-3\",\n            \
             \"dependsOn\": [\n                \"US-1\"\n            ]\n        }",
    );
    assert_eq!(added, expected);
    let empty = "{\n  \"userStories\": [\n  ]\n}\n";
    assert_eq!(
        edit::add_story(empty, &json!({"id": "a"})).unwrap(),
        "{\n  \"userStories\": [\n    {\n      \"id\": \"a\"\n    }\n  ]\n}\n"
    );
    assert_eq!(
        edit::add_story("{\"userStories\":[]}", &json!({"id": "a"})),
        Some("{\"userStories\":[{\"id\": \"a\"}]}".to_owned())
    );
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((".{0,3}", inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn text_edit_equals_value_edit(
        fields in prop::collection::vec((".{0,4}", value()), 0..5),
        key in ".{0,4}",
        new in value(),
        pretty in any::<bool>(),
    ) {
        let mut story: Map<String, Value> = fields.into_iter().collect();
        story.insert("id".to_owned(), json!("x"));
        let list = json!({"userStories": [{"id": "y"}, story, {"id": "z"}]});
        let text = if pretty { format!("{list:#}") } else { list.to_string() };
        prop_assume!(key != "id");
        let edited = edit::set_in_story(&text, "x", &[(&key, new.clone())]).unwrap();
        let mut expected = list;
        expected["userStories"][1][&key] = new;
        prop_assert_eq!(edit::value(&edited), Some(expected.clone()));
        let added = edit::add_story(&edited, &json!({"id": "w"})).unwrap();
        expected["userStories"].as_array_mut().unwrap().push(json!({"id": "w"}));
        prop_assert_eq!(edit::value(&added), Some(expected));
    }

    #[test]
    fn task_list_parser_and_editor_never_panic(text in ".*", bytes in prop::collection::vec(any::<u8>(), 0..64)) {
        let _ = parse(&bytes);
        let _ = parse(text.as_bytes());
        let _ = edit::set(&text, &[("a", json!(1))]);
        let _ = edit::set_in_story(&text, "a", &[("a", json!(1))]);
    }
}
