//! Every agent in a sandbox: what its profile names is there, and nothing of the other agents.

use ralph_agents::profile::{AgentProfile, FileExposure};

use super::*;

/// The agent's files in the home directory, unless a variable moves them.
fn home_files(profile: &AgentProfile) -> Vec<(String, FileExposure)> {
    let path = |dir: &str, name: &str| Path::new("/home/u").join(dir).join(name);
    let files = profile.homes.iter().flat_map(|home| {
        home.entries.iter().map(|(name, exposure)| (path(home.dir.path, name), *exposure))
    });
    files.map(|(path, exposure)| (path.display().to_string(), exposure)).collect()
}

#[test]
fn plan_exposes_files_of_each_agent_as_its_profile_says() {
    let all = || ralph_agents::all().iter().map(|adapter| adapter.profile());
    let files: Vec<_> = all().flat_map(home_files).map(|(file, _)| file).collect();
    let machine: Vec<&str> = files.iter().map(String::as_str).collect();
    for profile in all() {
        let plan = plan_of(&PlanInputs { adapter: profile.name, ..wanted() }, &machine);
        let own = home_files(profile);
        for (file, exposure) in &own {
            let hidden = seen(&plan, file).contains(SCRATCH);
            match exposure {
                FileExposure::Config => assert_eq!(seen(&plan, file), format!("r {file}")),
                FileExposure::Credentials => assert_eq!(seen(&plan, file), format!("w {file}")),
                FileExposure::Copy => {
                    let copied = plan.copies.iter().any(|(from, _)| from == Path::new(file));
                    assert!(hidden && copied, "{}: {file}", profile.name);
                }
            }
        }
        for file in files.iter().filter(|file| own.iter().all(|(own, _)| own != *file)) {
            assert!(seen(&plan, file).contains(SCRATCH), "{} sees {file}", profile.name);
        }
    }
}

#[test]
fn plan_passes_keys_of_each_agent_as_its_profile_says() {
    let variable = |prefix: &str| match prefix.strip_suffix('_') {
        Some(service) => format!("{service}_API_KEY"),
        None => prefix.to_owned(),
    };
    let prefixes = ralph_agents::profile::MODEL_SERVICE_PREFIXES;
    let mut env: Vec<_> = prefixes.iter().map(|prefix| (variable(prefix), "x")).collect();
    env.extend([
        ("AWS_SECRET_ACCESS_KEY".to_owned(), "x"),
        ("CLAUDE_CODE_USE_BEDROCK".to_owned(), "1"),
    ]);
    let env: Vec<_> = env.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    for adapter in ralph_agents::all() {
        let profile = adapter.profile();
        assert!(profile.key_prefixes.iter().all(|prefix| prefixes.contains(prefix)));
        let wanted = PlanInputs { adapter: profile.name, env: env.clone(), ..wanted() };
        let withheld = plan_of(&wanted, &[]).withheld;
        for prefix in prefixes {
            let name = variable(prefix);
            let is_own = profile.key_prefixes.iter().any(|own| name.starts_with(own));
            assert_eq!(withheld.contains(&name), !is_own, "{}: {name}", profile.name);
        }
        let has_cloud = !profile.extras.cloud_keys.is_empty();
        let keeps_cloud = withheld.iter().all(|name| name != "AWS_SECRET_ACCESS_KEY");
        assert_eq!(keeps_cloud, has_cloud, "{}", profile.name);
    }
}
