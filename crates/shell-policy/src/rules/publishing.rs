//! Publishing and supply chain.

use super::table::{MACHINE_INSTALLERS, deny, warn};
use super::{Hit, Invocation, Rule};
use crate::Family::Publishing;
use crate::value::Arg;

const PERSON: &str = "prepare the release and leave publishing to a person";
/// Programs that put the project where the world sees it.
const HOSTS: &[&str] = &[
    "vercel",
    "now",
    "netlify",
    "firebase",
    "wrangler",
    "fly",
    "flyctl",
    "railway",
    "render",
    "gcloud",
    "sls",
    "serverless",
    "sam",
    "heroku",
    "amplify",
    "eb",
    "kamal",
    "deployctl",
];

const LOCAL: &str = "add it to the project's own dependencies";

pub(super) const RULES: &[Rule] = &[
    warn(Publishing, &["go"]).sub(&["run *@*"]).because("it runs code from elsewhere", LOCAL),
    warn(Publishing, &["deno"])
        .sub(&["run http://*", "run https://*"])
        .because("it runs code from elsewhere", LOCAL),
    warn(Publishing, &["helm"])
        .sub(&["install * http://*", "install * https://*", "upgrade * https://*"])
        .because("the chart comes from elsewhere", "use a chart that the project names"),
    deny(
        Publishing,
        &[
            "npm",
            "pnpm",
            "yarn",
            "bun",
            "jsr",
            "deno",
            "lerna",
            "changeset",
            "vsce",
            "ovsx",
            "clasp",
        ],
    )
    .sub(&[
        "publish",
        "unpublish",
        "npm publish",
        "deprecate",
        "dist-tag add",
        "owner add",
        "access *",
        "star",
    ])
    .unless(&["--dry-run", "-n"])
    .because("it publishes a package", PERSON),
    deny(Publishing, &["npm", "pnpm", "yarn"])
        .sub(&[
            "login",
            "adduser",
            "logout",
            "npm login",
            "profile set",
            "config set registry*",
            "config set *registry*",
            "config set *_authToken*",
        ])
        .because(
            "it changes who publishes, or where packages come from",
            "leave the registry as it is",
        ),
    deny(Publishing, &["cargo"])
        .sub(&["publish", "yank", "owner", "login", "release"])
        .unless(&["--dry-run", "-n"])
        .because("it publishes a crate", PERSON),
    deny(Publishing, &["twine"])
        .sub(&["upload", "register"])
        .because("it publishes a package", PERSON),
    deny(Publishing, &["poetry", "uv", "flit", "hatch", "pdm", "maturin"])
        .sub(&["publish", "upload"])
        .unless(&["--dry-run"])
        .because("it publishes a package", PERSON),
    deny(Publishing, &["gem"])
        .sub(&["push", "yank", "owner", "signin"])
        .because("it publishes a gem", PERSON),
    deny(Publishing, &["mvn", "mvnw", "gradle", "gradlew", "sbt"])
        .sub(&[
            "deploy",
            "*:deploy",
            "publish",
            "publishSigned",
            "*/publish",
            "*/publishSigned",
            "sonatypeRelease",
            "sonatypeBundleRelease",
            "publishToMavenCentral",
            "publishPlugins",
            "release:perform",
            "clean deploy",
            "uploadArchives",
        ])
        .because("it publishes an artifact", PERSON),
    deny(Publishing, &["dotnet", "nuget"])
        .sub(&["nuget push", "push", "nuget delete", "delete"])
        .because("it publishes a package", PERSON),
    deny(
        Publishing,
        &["docker", "podman", "nerdctl", "buildah", "crane", "skopeo", "oras", "helm", "cosign"],
    )
    .sub(&["push", "image push", "manifest push", "compose push", "copy", "sign"])
    .because("it publishes an image", PERSON),
    deny(Publishing, &["docker", "podman"])
        .sub(&["build", "buildx build", "buildx bake"])
        .with(&["--push"])
        .because("it publishes an image", PERSON),
    deny(Publishing, &["docker", "podman", "helm"])
        .sub(&["login", "registry login"])
        .because("it logs in to a registry", PERSON),
    deny(Publishing, &["gh"])
        .sub(&[
            "release create",
            "release upload",
            "release delete",
            "release edit",
            "workflow run",
            "secret set",
            "variable set",
            "ssh-key add",
            "auth login",
            "repo edit",
            "repo create",
            "repo rename",
            "extension install",
        ])
        .because("it publishes, or changes what others rely on", PERSON),
    deny(Publishing, &["glab"])
        .sub(&["release create", "release upload"])
        .because("it publishes a release", PERSON),
    deny(
        Publishing,
        &[
            "goreleaser",
            "semantic-release",
            "release-it",
            "np",
            "standard-version-publish",
            "bumpp",
        ],
    )
    .unless(&["--snapshot", "--dry-run", "--no-publish", "--skip-publish", "-d"])
    .because("it publishes a release", PERSON),
    // What the world gets to see at once.
    deny(Publishing, HOSTS)
        .sub(&[
            "deploy",
            "* deploy",
            "up",
            "publish",
            "* publish",
            "promote",
            "rollback",
            "launch",
            "release",
            "container:release",
            "deploy:*",
            "versions deploy",
            "hosting:channel:deploy",
        ])
        .unless(&["--build-only", "--noop", "--no-deploy"])
        .because("it changes what runs for everybody", PERSON),
    deny(Publishing, &["vercel", "netlify", "now"])
        .with(&["--prod", "--production"])
        .because("it changes what runs for everybody", PERSON),
    deny(Publishing, &["gh-pages", "surge"]).because("it changes what everybody sees", PERSON),
    deny(Publishing, &["eas", "expo"])
        .sub(&["submit", "update", "publish"])
        .because("it publishes an app", PERSON),
    deny(Publishing, &["rush", "nx", "beachball", "auto"])
        .sub(&["publish", "release", "release publish", "shipit"])
        .because("it publishes packages", PERSON),
    deny(Publishing, &["mix"])
        .sub(&["hex.publish", "hex.retire"])
        .because("it publishes a package", PERSON),
    deny(Publishing, &["pod"])
        .sub(&["trunk push", "repo push"])
        .because("it publishes a pod", PERSON),
    deny(Publishing, &["anaconda", "conda"])
        .sub(&["upload"])
        .because("it publishes a package", PERSON),
    deny(Publishing, &["stack", "cabal"])
        .sub(&["upload"])
        .because("it publishes a package", PERSON),
    deny(Publishing, &["luarocks"]).sub(&["upload"]).because("it publishes a rock", PERSON),
    deny(Publishing, &["fastlane", "altool", "notarytool", "bundletool"])
        .sub(&["*"])
        .because("it publishes an app", PERSON),
    deny(Publishing, &["pip"]).sub(&["config set", "config edit"]).because(
        "it changes where every later pip gets packages from",
        "give the option to the one command that needs it",
    ),
    // Downloads and runs what the project does not name.
    warn(Publishing, &["npx", "bunx", "pnpx", "uvx"])
        .unless(&["--no-install", "--no"])
        .because("it downloads and runs a package that the project may not have chosen", LOCAL),
    warn(Publishing, &["pnpm", "yarn", "npm", "bun", "pipx", "uv"])
        .sub(&["dlx", "exec", "x", "run", "tool run", "create", "init *", "create *"])
        .with(&["--yes", "-y", "--spec", "--package", "-p"])
        .because("it downloads and runs a package that the project may not have chosen", LOCAL),
    warn(Publishing, &["npm", "pnpm", "yarn", "bun"])
        .sub(&["create *", "init *"])
        .because("it downloads and runs a package that the project may not have chosen", LOCAL),
    warn(Publishing, &["pnpm", "yarn"])
        .sub(&["dlx"])
        .because("it downloads and runs a package that the project may not have chosen", LOCAL),
    warn(Publishing, &["pipx"])
        .sub(&["run", "install"])
        .because("it installs for the whole user", LOCAL),
    // Global installs.
    warn(Publishing, &["npm", "pnpm", "bun"])
        .sub(&["install", "i", "add", "link", "update", "uninstall", "in", "isntall"])
        .with(&["-g", "--global", "--location"])
        .because("it installs for the whole user", LOCAL),
    warn(Publishing, &["yarn", "composer"])
        .sub(&["global *"])
        .because("it installs for the whole user", LOCAL),
    warn(Publishing, &["cargo"])
        .sub(&["install", "uninstall", "binstall"])
        .unless(&["--root", "--list"])
        .because("it installs for the whole user", LOCAL),
    warn(Publishing, &["gem"])
        .sub(&["install", "uninstall", "update"])
        .unless(&["--install-dir"])
        .because("it installs for the whole user", LOCAL),
    warn(Publishing, &["go"])
        .sub(&["install *@*"])
        .because("it installs for the whole user", LOCAL),
    warn(Publishing, &["dotnet"])
        .sub(&["tool install"])
        .with(&["-g", "--global"])
        .because("it installs for the whole user", LOCAL),
    warn(Publishing, &["uv"])
        .sub(&["tool install"])
        .because("it installs for the whole user", LOCAL),
    warn(Publishing, &["cargo", "bundle", "poetry", "uv", "pdm"])
        .sub(&["add"])
        .with(&["--git", "--github"])
        .because(
            "it adds a package from an address, which no registry vouches for",
            "add a released version from the project's registry",
        ),
    warn(Publishing, &["pip"])
        .sub(&["install", "uninstall"])
        .with(&["--user", "--break-system-packages", "--target", "--prefix"])
        .because(
            "it installs outside of the project's environment",
            "use the project's virtual environment",
        ),
    warn(Publishing, MACHINE_INSTALLERS)
        .sub(&["install", "add", "upgrade", "update", "reinstall", "tap", "link", "in"])
        .because("it installs for the whole machine", LOCAL),
    warn(Publishing, &["pacman", "nix-env", "xbps-install"])
        .with(&["-S", "-i", "-U", "--sync", "--install"])
        .unless(&["-s", "--search"])
        .because("it installs for the whole machine", LOCAL),
    warn(Publishing, &["rustup", "nvm", "pyenv", "rbenv", "asdf", "mise", "volta", "fnm"])
        .sub(&[
            "install",
            "default",
            "global",
            "toolchain install",
            "update",
            "use --global",
            "alias",
        ])
        .because("it changes a tool for the whole user", "use the version that the project names"),
];

/// Packages that come from elsewhere than from the registry that everybody uses.
fn registry(command: &Invocation<'_>) -> Option<Hit> {
    const USUAL: &[&str] = &["https://pypi.org/", "https://registry.npmjs.org/"];
    const SETS: &[&str] = &["install", "i", "add", "ci"];
    let elsewhere = match command.name {
        "pip" | "uv" => {
            let flags =
                ["--index-url", "--extra-index-url", "--trusted-host", "--find-links", "-i"];
            let given = command.values(&flags);
            // Without an index, a directory of wheels is all that there is.
            let is_local = |url: &Arg| command.has(&["--no-index"]) && !url.text.contains("://");
            let strange = given.iter().any(|url| !is_usual(USUAL, &url.text) && !is_local(url));
            strange || (given.is_empty() && command.has(&flags))
        }
        "npm" | "pnpm" | "yarn" | "bun"
            if command.operands().first().is_some_and(|sub| SETS.contains(&sub.text.as_str())) =>
        {
            let given = command.values(&["--registry"]);
            let strange = given.iter().any(|url| !is_usual(USUAL, &url.text));
            strange || (given.is_empty() && command.has(&["--registry"]))
        }
        _ => false,
    };
    elsewhere.then(|| {
        Hit::deny(
            Publishing,
            "packages come from another registry",
            "use the registry that the project is set up for",
        )
    })
}

fn is_usual(usual: &[&str], url: &str) -> bool {
    let url = format!("{}/", url.trim_end_matches('/'));
    usual.iter().any(|registry| url.starts_with(registry))
}

/// Packages that come from an address, which no registry vouches for.
fn from_address(command: &Invocation<'_>) -> Option<Hit> {
    const PYTHON: &[&str] = &["pip", "uv", "poetry", "pdm", "pipenv", "easy_install", "conda"];
    const NODE: &[&str] = &["npm", "pnpm", "yarn", "bun"];
    const INSTALLS: &[&str] = &["install", "i", "in", "add", "isntall"];
    if !command.is(PYTHON) && !command.is(NODE) {
        return None;
    }
    let operands = command.operands();
    // `uv pip install`
    let sub = operands.iter().take(2).position(|arg| INSTALLS.contains(&arg.text.as_str()))?;
    let packages = operands.get(sub + 1..).unwrap_or_default();
    let elsewhere = |package: &&&Arg| {
        let text = package.text.as_str();
        // `name @ address`, `name@address`
        let address = text.split_once('@').map_or(text, |(name, rest)| {
            if name.contains([':', '/']) { text } else { rest.trim_start() }
        });
        let hosted = ["github:", "gitlab:", "bitbucket:", "gist:"];
        let name = text.split('#').next().unwrap_or_default();
        let scoped = name.starts_with(['@', '.', '/', '~']) || name.contains(':');
        (address.contains("://") && !address.starts_with("file:"))
            || address.starts_with("git@")
            || text.starts_with("git@")
            || hosted.iter().any(|host| address.starts_with(host))
            // `user/repository`
            || (command.is(NODE) && !scoped && name.matches('/').count() == 1)
    };
    packages.iter().find(elsewhere)?;
    Some(Hit::warn(
        Publishing,
        "it installs a package from an address, which no registry vouches for",
        "install a released version from the project's registry",
    ))
}

pub(super) fn look(command: &Invocation<'_>, hits: &mut Vec<Hit>) {
    hits.extend(registry(command));
    hits.extend(from_address(command));
    let text = |word: &str| command.args.iter().any(|arg| arg.text == word);
    if command.is(&["python"]) && text("setup.py") && (text("upload") || text("register")) {
        hits.push(Hit::deny(Publishing, "it publishes a package", PERSON));
    }
    // `python -m pip …`, `python -m twine upload` are judged as the module's own program.
    if command.name == "python"
        && let Some(at) = command.args.iter().position(|arg| arg.text == "-m")
        && let Some((module, args)) = command.args.get(at + 1..).and_then(<[_]>::split_first)
        && ["pip", "twine", "flit", "poetry", "pipx"].contains(&module.text.as_str())
    {
        let inner = Invocation { name: &module.text, args, scene: command.scene };
        hits.extend(registry(&inner));
        hits.extend(from_address(&inner));
        for rule in RULES {
            hits.extend(rule.look(&inner));
        }
    }
    // Without a word it puts the project, or the directory that it is given, into the cloud.
    let harmless = ["--help", "-h", "--version", "-v"];
    if command.is(&["vercel", "now"])
        && command.operands().first().is_none_or(|arg| arg.text.starts_with(['.', '/']))
        && !command.args.iter().any(|arg| harmless.contains(&arg.text.as_str()))
    {
        hits.push(Hit::deny(Publishing, "it changes what runs for everybody", PERSON));
    }
    // A package from a plain address is nobody's package.
    if command.is(&["pip", "npm", "pnpm", "yarn", "bun", "gem", "easy_install"])
        && command.operands().iter().skip(1).any(|arg| {
            arg.text.starts_with("http://")
                || arg.text.starts_with("git+http:")
                || arg.text.starts_with("ftp://")
        })
    {
        hits.push(Hit::deny(
            Publishing,
            "it installs what comes over a connection that nobody vouches for",
            "install from the project's registry",
        ));
    }
}
