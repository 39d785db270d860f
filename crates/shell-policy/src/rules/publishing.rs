//! Publishing and supply chain.

use super::table::{MACHINE_INSTALLERS, deny, warn};
use super::{CommandInvocation, CommandRule, Hit};
use crate::Family::Publishing;
use crate::value::Argument;

const LEAVE_PUBLISHING_TO_USER: &str = "prepare the release and leave publishing to a person";
/// Programs that put the project where the world sees it.
const HOSTING_TOOLS: &[&str] = &[
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

const ADD_AS_DEPENDENCY: &str = "add it to the project's own dependencies";

pub(super) const RULES: &[CommandRule] = &[
    warn(Publishing, &["go"])
        .subcommands(&["run *@*"])
        .reason("it runs code from elsewhere", ADD_AS_DEPENDENCY),
    warn(Publishing, &["deno"])
        .subcommands(&["run http://*", "run https://*"])
        .reason("it runs code from elsewhere", ADD_AS_DEPENDENCY),
    warn(Publishing, &["helm"])
        .subcommands(&["install * http://*", "install * https://*", "upgrade * https://*"])
        .reason("the chart comes from elsewhere", "use a chart that the project names"),
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
    .subcommands(&[
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
    .reason("it publishes a package", LEAVE_PUBLISHING_TO_USER),
    deny(Publishing, &["npm", "pnpm", "yarn"])
        .subcommands(&[
            "login",
            "adduser",
            "logout",
            "npm login",
            "profile set",
            "config set registry*",
            "config set *registry*",
            "config set *_authToken*",
        ])
        .reason(
            "it changes who publishes, or where packages come from",
            "leave the registry as it is",
        ),
    deny(Publishing, &["cargo"])
        .subcommands(&["publish", "yank", "owner", "login", "release"])
        .unless(&["--dry-run", "-n"])
        .reason("it publishes a crate", LEAVE_PUBLISHING_TO_USER),
    deny(Publishing, &["twine"])
        .subcommands(&["upload", "register"])
        .reason("it publishes a package", LEAVE_PUBLISHING_TO_USER),
    deny(Publishing, &["poetry", "uv", "flit", "hatch", "pdm", "maturin"])
        .subcommands(&["publish", "upload"])
        .unless(&["--dry-run"])
        .reason("it publishes a package", LEAVE_PUBLISHING_TO_USER),
    deny(Publishing, &["gem"])
        .subcommands(&["push", "yank", "owner", "signin"])
        .reason("it publishes a gem", LEAVE_PUBLISHING_TO_USER),
    deny(Publishing, &["mvn", "mvnw", "gradle", "gradlew", "sbt"])
        .subcommands(&[
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
        .reason("it publishes an artifact", LEAVE_PUBLISHING_TO_USER),
    deny(Publishing, &["dotnet", "nuget"])
        .subcommands(&["nuget push", "push", "nuget delete", "delete"])
        .reason("it publishes a package", LEAVE_PUBLISHING_TO_USER),
    deny(
        Publishing,
        &["docker", "podman", "nerdctl", "buildah", "crane", "skopeo", "oras", "helm", "cosign"],
    )
    .subcommands(&["push", "image push", "manifest push", "compose push", "copy", "sign"])
    .reason("it publishes an image", LEAVE_PUBLISHING_TO_USER),
    deny(Publishing, &["docker", "podman"])
        .subcommands(&["build", "buildx build", "buildx bake"])
        .flags(&["--push"])
        .reason("it publishes an image", LEAVE_PUBLISHING_TO_USER),
    deny(Publishing, &["docker", "podman", "helm"])
        .subcommands(&["login", "registry login"])
        .reason("it logs in to a registry", LEAVE_PUBLISHING_TO_USER),
    deny(Publishing, &["gh"])
        .subcommands(&[
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
        .reason("it publishes, or changes what others rely on", LEAVE_PUBLISHING_TO_USER),
    deny(Publishing, &["glab"])
        .subcommands(&["release create", "release upload"])
        .reason("it publishes a release", LEAVE_PUBLISHING_TO_USER),
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
    .reason("it publishes a release", LEAVE_PUBLISHING_TO_USER),
    // What the world gets to see at once.
    deny(Publishing, HOSTING_TOOLS)
        .subcommands(&[
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
        .reason("it changes what runs for everybody", LEAVE_PUBLISHING_TO_USER),
    deny(Publishing, &["vercel", "netlify", "now"])
        .flags(&["--prod", "--production"])
        .reason("it changes what runs for everybody", LEAVE_PUBLISHING_TO_USER),
    deny(Publishing, &["gh-pages", "surge"])
        .reason("it changes what everybody sees", LEAVE_PUBLISHING_TO_USER),
    deny(Publishing, &["eas", "expo"])
        .subcommands(&["submit", "update", "publish"])
        .reason("it publishes an app", LEAVE_PUBLISHING_TO_USER),
    deny(Publishing, &["rush", "nx", "beachball", "auto"])
        .subcommands(&["publish", "release", "release publish", "shipit"])
        .reason("it publishes packages", LEAVE_PUBLISHING_TO_USER),
    deny(Publishing, &["mix"])
        .subcommands(&["hex.publish", "hex.retire"])
        .reason("it publishes a package", LEAVE_PUBLISHING_TO_USER),
    deny(Publishing, &["pod"])
        .subcommands(&["trunk push", "repo push"])
        .reason("it publishes a pod", LEAVE_PUBLISHING_TO_USER),
    deny(Publishing, &["anaconda", "conda"])
        .subcommands(&["upload"])
        .reason("it publishes a package", LEAVE_PUBLISHING_TO_USER),
    deny(Publishing, &["stack", "cabal"])
        .subcommands(&["upload"])
        .reason("it publishes a package", LEAVE_PUBLISHING_TO_USER),
    deny(Publishing, &["luarocks"])
        .subcommands(&["upload"])
        .reason("it publishes a rock", LEAVE_PUBLISHING_TO_USER),
    deny(Publishing, &["fastlane", "altool", "notarytool", "bundletool"])
        .subcommands(&["*"])
        .reason("it publishes an app", LEAVE_PUBLISHING_TO_USER),
    deny(Publishing, &["pip"]).subcommands(&["config set", "config edit"]).reason(
        "it changes where every later pip gets packages from",
        "give the option to the one command that needs it",
    ),
    // Downloads and runs what the project does not name.
    warn(Publishing, &["npx", "bunx", "pnpx", "uvx"]).unless(&["--no-install", "--no"]).reason(
        "it downloads and runs a package that the project may not have chosen",
        ADD_AS_DEPENDENCY,
    ),
    warn(Publishing, &["pnpm", "yarn", "npm", "bun", "pipx", "uv"])
        .subcommands(&["dlx", "exec", "x", "run", "tool run", "create", "init *", "create *"])
        .flags(&["--yes", "-y", "--spec", "--package", "-p"])
        .reason(
            "it downloads and runs a package that the project may not have chosen",
            ADD_AS_DEPENDENCY,
        ),
    warn(Publishing, &["npm", "pnpm", "yarn", "bun"]).subcommands(&["create *", "init *"]).reason(
        "it downloads and runs a package that the project may not have chosen",
        ADD_AS_DEPENDENCY,
    ),
    warn(Publishing, &["pnpm", "yarn"]).subcommands(&["dlx"]).reason(
        "it downloads and runs a package that the project may not have chosen",
        ADD_AS_DEPENDENCY,
    ),
    warn(Publishing, &["pipx"])
        .subcommands(&["run", "install"])
        .reason("it installs for the whole user", ADD_AS_DEPENDENCY),
    // Global installs.
    warn(Publishing, &["npm", "pnpm", "bun"])
        .subcommands(&["install", "i", "add", "link", "update", "uninstall", "in", "isntall"])
        .flags(&["-g", "--global", "--location"])
        .reason("it installs for the whole user", ADD_AS_DEPENDENCY),
    warn(Publishing, &["yarn", "composer"])
        .subcommands(&["global *"])
        .reason("it installs for the whole user", ADD_AS_DEPENDENCY),
    warn(Publishing, &["cargo"])
        .subcommands(&["install", "uninstall", "binstall"])
        .unless(&["--root", "--list"])
        .reason("it installs for the whole user", ADD_AS_DEPENDENCY),
    warn(Publishing, &["gem"])
        .subcommands(&["install", "uninstall", "update"])
        .unless(&["--install-dir"])
        .reason("it installs for the whole user", ADD_AS_DEPENDENCY),
    warn(Publishing, &["go"])
        .subcommands(&["install *@*"])
        .reason("it installs for the whole user", ADD_AS_DEPENDENCY),
    warn(Publishing, &["dotnet"])
        .subcommands(&["tool install"])
        .flags(&["-g", "--global"])
        .reason("it installs for the whole user", ADD_AS_DEPENDENCY),
    warn(Publishing, &["uv"])
        .subcommands(&["tool install"])
        .reason("it installs for the whole user", ADD_AS_DEPENDENCY),
    warn(Publishing, &["cargo", "bundle", "poetry", "uv", "pdm"])
        .subcommands(&["add"])
        .flags(&["--git", "--github"])
        .reason(
            "it adds a package from an address, which no registry vouches for",
            "add a released version from the project's registry",
        ),
    warn(Publishing, &["pip"])
        .subcommands(&["install", "uninstall"])
        .flags(&["--user", "--break-system-packages", "--target", "--prefix"])
        .reason(
            "it installs outside of the project's environment",
            "use the project's virtual environment",
        ),
    warn(Publishing, MACHINE_INSTALLERS)
        .subcommands(&["install", "add", "upgrade", "update", "reinstall", "tap", "link", "in"])
        .reason("it installs for the whole machine", ADD_AS_DEPENDENCY),
    warn(Publishing, &["pacman", "nix-env", "xbps-install"])
        .flags(&["-S", "-i", "-U", "--sync", "--install"])
        .unless(&["-s", "--search"])
        .reason("it installs for the whole machine", ADD_AS_DEPENDENCY),
    warn(Publishing, &["rustup", "nvm", "pyenv", "rbenv", "asdf", "mise", "volta", "fnm"])
        .subcommands(&[
            "install",
            "default",
            "global",
            "toolchain install",
            "update",
            "use --global",
            "alias",
        ])
        .reason("it changes a tool for the whole user", "use the version that the project names"),
];

/// Packages that come from elsewhere than from the registry that everybody uses.
fn check_registry(command: &CommandInvocation<'_>) -> Option<Hit> {
    const DEFAULT_REGISTRIES: &[&str] = &["https://pypi.org/", "https://registry.npmjs.org/"];
    const INSTALL_SUBCOMMANDS: &[&str] = &["install", "i", "add", "ci"];
    let elsewhere = match command.name {
        "pip" | "uv" => {
            let flags =
                ["--index-url", "--extra-index-url", "--trusted-host", "--find-links", "-i"];
            let given = command.values(&flags);
            // Without an index, a directory of wheels is all that there is.
            let is_local =
                |url: &Argument| command.has(&["--no-index"]) && !url.text.contains("://");
            let strange = given
                .iter()
                .any(|url| !is_default_registry(DEFAULT_REGISTRIES, &url.text) && !is_local(url));
            strange || (given.is_empty() && command.has(&flags))
        }
        "npm" | "pnpm" | "yarn" | "bun"
            if command
                .operands()
                .first()
                .is_some_and(|sub| INSTALL_SUBCOMMANDS.contains(&sub.text.as_str())) =>
        {
            let given = command.values(&["--registry"]);
            let strange =
                given.iter().any(|url| !is_default_registry(DEFAULT_REGISTRIES, &url.text));
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

fn is_default_registry(usual: &[&str], url: &str) -> bool {
    let url = format!("{}/", url.trim_end_matches('/'));
    usual.iter().any(|registry| url.starts_with(registry))
}

/// Packages that come from an address, which no registry vouches for.
fn check_url_package(command: &CommandInvocation<'_>) -> Option<Hit> {
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
    let elsewhere = |package: &&&Argument| {
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

pub(super) fn check(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    hits.extend(check_registry(command));
    hits.extend(check_url_package(command));
    let text = |word: &str| command.args.iter().any(|arg| arg.text == word);
    if command.is(&["python"]) && text("setup.py") && (text("upload") || text("register")) {
        hits.push(Hit::deny(Publishing, "it publishes a package", LEAVE_PUBLISHING_TO_USER));
    }
    // `python -m pip …`, `python -m twine upload` are judged as the module's own program.
    if command.name == "python"
        && let Some(at) = command.args.iter().position(|arg| arg.text == "-m")
        && let Some((module, args)) = command.args.get(at + 1..).and_then(<[_]>::split_first)
        && ["pip", "twine", "flit", "poetry", "pipx"].contains(&module.text.as_str())
    {
        let inner = CommandInvocation { name: &module.text, args, context: command.context };
        hits.extend(check_registry(&inner));
        hits.extend(check_url_package(&inner));
        for rule in RULES {
            hits.extend(rule.check(&inner));
        }
    }
    // Without a word it puts the project, or the directory that it is given, into the cloud.
    let harmless = ["--help", "-h", "--version", "-v"];
    if command.is(&["vercel", "now"])
        && command.operands().first().is_none_or(|arg| arg.text.starts_with(['.', '/']))
        && !command.args.iter().any(|arg| harmless.contains(&arg.text.as_str()))
    {
        hits.push(Hit::deny(
            Publishing,
            "it changes what runs for everybody",
            LEAVE_PUBLISHING_TO_USER,
        ));
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
