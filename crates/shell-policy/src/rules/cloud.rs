//! Cloud and infrastructure: destroying what runs elsewhere.

use super::table::{deny, warn};
use super::{Hit, Invocation, Rule};
use crate::Family::Cloud;

const PLAN: &str = "show the plan and leave carrying it out to a person";

pub(super) const RULES: &[Rule] = &[
    deny(Cloud, &["terraform", "tofu", "terragrunt", "cdktf"])
        .sub(&[
            "destroy",
            "run-all destroy",
            "state rm",
            "state push",
            "force-unlock",
            "taint",
            "workspace delete",
        ])
        .because("it destroys infrastructure", PLAN),
    deny(Cloud, &["terraform", "tofu", "terragrunt"])
        .sub(&["apply"])
        .with(&["-destroy", "-auto-approve"])
        .because("it changes infrastructure without anybody looking", PLAN),
    warn(Cloud, &["terraform", "tofu", "terragrunt", "pulumi", "cdk"])
        .sub(&["apply", "up", "deploy", "import"])
        .because("it changes infrastructure", PLAN),
    deny(Cloud, &["pulumi"])
        .sub(&["destroy", "stack rm", "state delete", "cancel"])
        .because("it destroys infrastructure", PLAN),
    deny(Cloud, &["cdk", "sls", "serverless", "sam", "copilot", "eb", "amplify", "sst"])
        .sub(&["destroy", "remove", "delete", "terminate", "app delete", "svc delete"])
        .because("it destroys infrastructure", PLAN),
    deny(Cloud, &["kubectl", "oc", "k"])
        .sub(&["delete", "drain", "replace", "cordon", "taint"])
        .unless(&["--dry-run"])
        .because("it removes what runs in a cluster", PLAN),
    deny(Cloud, &["kubectl", "oc", "k"])
        .sub(&["apply", "rollout"])
        .with(&["--prune", "--force"])
        .because("it stops or replaces what runs in a cluster", PLAN),
    deny(Cloud, &["helm", "helmfile", "argocd", "flux", "istioctl"])
        .sub(&["uninstall", "delete", "del", "destroy", "rollback", "app delete", "purge"])
        .unless(&["--dry-run"])
        .because("it removes what runs in a cluster", PLAN),
    deny(Cloud, &["aws"])
        .sub(&[
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
        .because("it destroys or cuts off something in the cloud", PLAN),
    deny(Cloud, &["aws"])
        .sub(&["s3 rm", "s3 sync", "s3 mv"])
        .with(&["--recursive", "--delete"])
        .unless(&["--dryrun"])
        .because("it deletes what is in a store", PLAN),
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
    .sub(&[
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
    .because("it destroys something in the cloud", PLAN),
    deny(Cloud, &["gsutil"])
        .sub(&["rm", "rb", "* rm"])
        .because("it deletes what is in a store", PLAN),
    deny(Cloud, &["gcloud"]).sub(&["storage rm"]).because("it deletes what is in a store", PLAN),
    deny(Cloud, &["bq"]).sub(&["rm"]).because("it deletes data", PLAN),
    deny(Cloud, &["s3cmd", "mc", "s5cmd"])
        .sub(&["del", "rb", "rm", "rd", "delete"])
        .because("it deletes what is in a store", PLAN),
    deny(Cloud, &["heroku"])
        .sub(&[
            "apps:destroy",
            "destroy",
            "pg:reset",
            "addons:destroy",
            "apps:delete",
            "ps:stop",
            "maintenance:on",
        ])
        .because("it destroys an app or its data", PLAN),
    deny(
        Cloud,
        &[
            "fly", "flyctl", "vercel", "netlify", "railway", "render", "wrangler", "firebase",
            "surge", "now",
        ],
    )
    .sub(&[
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
    .because("it destroys an app or its data", PLAN),
    deny(Cloud, &["gh"])
        .sub(&[
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
        .because("it deletes what others may rely on", PLAN),
    warn(Cloud, &["aws"]).sub(&["s3 rm"]).because("it deletes what is in a store", PLAN),
    deny(Cloud, &["eksctl", "kops", "kubeadm", "talosctl", "rancher", "gardenctl"])
        .sub(&["delete", "delete *", "reset", "cluster delete"])
        .because("it destroys a cluster", PLAN),
    warn(Cloud, &["k3d", "kind", "minikube"])
        .sub(&["delete", "cluster delete"])
        .because("it destroys a cluster on this machine", "delete the one that you made, by name"),
    deny(Cloud, &["nomad", "consul", "vault", "etcdctl", "zkcli"])
        .sub(&[
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
        .because("it destroys what a cluster runs on", PLAN),
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
    .sub(&["rm", "destroy", "delete", "undefine", "unregistervm", "destroy *"])
    .because("it destroys a machine", PLAN),
];

pub(super) fn look(command: &Invocation<'_>, hits: &mut Vec<Hit>) {
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
