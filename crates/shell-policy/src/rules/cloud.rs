//! Cloud and infrastructure: destroying what runs elsewhere.

use super::table::{deny, warn};
use super::{CommandInvocation, CommandRule, Hit};
use crate::Family::Cloud;

const PLAN: &str = "show the plan and leave carrying it out to a person";

pub(super) const RULES: &[CommandRule] = &[
    deny(Cloud, &["terraform", "tofu", "terragrunt", "cdktf"])
        .subcommands(&[
            "destroy",
            "run-all destroy",
            "state rm",
            "state push",
            "force-unlock",
            "taint",
            "workspace delete",
        ])
        .reason("it destroys infrastructure", PLAN),
    deny(Cloud, &["terraform", "tofu", "terragrunt"])
        .subcommands(&["apply"])
        .flags(&["-destroy", "-auto-approve"])
        .reason("it changes infrastructure without anybody looking", PLAN),
    warn(Cloud, &["terraform", "tofu", "terragrunt", "pulumi", "cdk"])
        .subcommands(&["apply", "up", "deploy", "import"])
        .reason("it changes infrastructure", PLAN),
    deny(Cloud, &["pulumi"])
        .subcommands(&["destroy", "stack rm", "state delete", "cancel"])
        .reason("it destroys infrastructure", PLAN),
    deny(Cloud, &["cdk", "sls", "serverless", "sam", "copilot", "eb", "amplify", "sst"])
        .subcommands(&["destroy", "remove", "delete", "terminate", "app delete", "svc delete"])
        .reason("it destroys infrastructure", PLAN),
    deny(Cloud, &["kubectl", "oc", "k"])
        .subcommands(&["delete", "drain", "replace", "cordon", "taint"])
        .unless(&["--dry-run"])
        .reason("it removes what runs in a cluster", PLAN),
    deny(Cloud, &["kubectl", "oc", "k"])
        .subcommands(&["apply", "rollout"])
        .flags(&["--prune", "--force"])
        .reason("it stops or replaces what runs in a cluster", PLAN),
    deny(Cloud, &["helm", "helmfile", "argocd", "flux", "istioctl"])
        .subcommands(&["uninstall", "delete", "del", "destroy", "rollback", "app delete", "purge"])
        .unless(&["--dry-run"])
        .reason("it removes what runs in a cluster", PLAN),
    deny(Cloud, &["aws"])
        .subcommands(&[
            "* delete-*",
            "* terminate-*",
            "* remove-*",
            "s3 rb",
            "* deregister-*",
            "* stop-*",
            "* purge-*",
            "* revoke-*",
            "* disable-*",
            "* detach-*",
            "* release-*",
            "* cancel-*",
            "* put-bucket-policy",
            "iam create-*",
            "iam attach-*",
            "iam put-*",
        ])
        .unless(&["--dry-run", "--dryrun"])
        .reason("it destroys or cuts off something in the cloud", PLAN),
    deny(Cloud, &["aws"])
        .subcommands(&["s3 rm", "s3 sync", "s3 mv"])
        .flags(&["--recursive", "--delete"])
        .unless(&["--dryrun"])
        .reason("it deletes what is in a store", PLAN),
    deny(
        Cloud,
        &[
            "gcloud",
            "az",
            "doctl",
            "oci",
            "ibmcloud",
            "linode-cli",
            "hcloud",
            "scw",
            "yc",
            "aliyun",
            "vultr-cli",
            "exo",
        ],
    )
    .subcommands(&[
        "delete",
        "* delete",
        "* * delete",
        "* * * delete",
        "* remove",
        "* * remove",
        "* purge",
        "* * purge",
        "* destroy",
        "* terminate",
        "* * terminate",
    ])
    .reason("it destroys something in the cloud", PLAN),
    deny(Cloud, &["gsutil"])
        .subcommands(&["rm", "rb", "* rm"])
        .reason("it deletes what is in a store", PLAN),
    deny(Cloud, &["gcloud"])
        .subcommands(&["storage rm"])
        .reason("it deletes what is in a store", PLAN),
    deny(Cloud, &["bq"]).subcommands(&["rm"]).reason("it deletes data", PLAN),
    deny(Cloud, &["s3cmd", "mc", "s5cmd"])
        .subcommands(&["del", "rb", "rm", "rd", "delete"])
        .reason("it deletes what is in a store", PLAN),
    deny(Cloud, &["heroku"])
        .subcommands(&[
            "apps:destroy",
            "destroy",
            "pg:reset",
            "addons:destroy",
            "apps:delete",
            "ps:stop",
            "maintenance:on",
        ])
        .reason("it destroys an app or its data", PLAN),
    deny(
        Cloud,
        &[
            "fly", "flyctl", "vercel", "netlify", "railway", "render", "wrangler", "firebase",
            "surge", "now",
        ],
    )
    .subcommands(&[
        "destroy",
        "apps destroy",
        "* destroy",
        "rm",
        "remove",
        "delete",
        "* delete",
        "sites:delete",
        "down",
        "teardown",
        "hosting:disable",
        "firestore:delete",
        "database:remove",
        "functions:delete",
        "project rm",
    ])
    .reason("it destroys an app or its data", PLAN),
    deny(Cloud, &["gh"])
        .subcommands(&[
            "repo delete",
            "repo archive",
            "run delete",
            "cache delete",
            "secret delete",
            "variable delete",
            "label delete",
            "issue delete",
            "gist delete",
            "ssh-key delete",
        ])
        .reason("it deletes what others may rely on", PLAN),
    warn(Cloud, &["aws"]).subcommands(&["s3 rm"]).reason("it deletes what is in a store", PLAN),
    deny(Cloud, &["eksctl", "kops", "kubeadm", "talosctl", "rancher", "gardenctl"])
        .subcommands(&["delete", "delete *", "reset", "cluster delete"])
        .reason("it destroys a cluster", PLAN),
    warn(Cloud, &["k3d", "kind", "minikube"])
        .subcommands(&["delete", "cluster delete"])
        .reason("it destroys a cluster on this machine", "delete the one that you made, by name"),
    deny(Cloud, &["nomad", "consul", "vault", "etcdctl", "zkcli"])
        .subcommands(&[
            "job stop",
            "stop",
            "kv delete",
            "delete",
            "del",
            "kv destroy",
            "secrets disable",
            "system gc",
            "rmr",
        ])
        .reason("it destroys what a cluster runs on", PLAN),
    deny(
        Cloud,
        &[
            "docker-machine",
            "vagrant",
            "multipass",
            "virsh",
            "vboxmanage",
            "qm",
            "pct",
            "prlctl",
            "limactl",
            "lxc",
        ],
    )
    .subcommands(&["rm", "destroy", "delete", "undefine", "unregistervm", "destroy *"])
    .reason("it destroys a machine", PLAN),
];

pub(super) fn check(command: &CommandInvocation<'_>, hits: &mut Vec<Hit>) {
    let sub = |word: &str| command.operands().first().is_some_and(|sub| sub.text == word);
    let value = |flags: &[&str], word: &str| {
        command.values(flags).iter().any(|value| value.text.eq_ignore_ascii_case(word))
    };
    if command.is(&["gh", "glab"]) && sub("api") && value(&["-X", "--method"], "delete") {
        hits.push(Hit::deny(Cloud, "it deletes what others may rely on", PLAN));
    }
    if command.is(&["kubectl", "oc", "k"]) && sub("scale") && value(&["--replicas"], "0") {
        hits.push(Hit::deny(Cloud, "it stops what runs in a cluster", PLAN));
    }
}
