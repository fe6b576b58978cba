//! The page under test: code generated for it, the process that drives the browser, and what it reports.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use highwater_wire::FILE_DESCRIPTOR_SET;
use prost::Message as _;
use prost_types::{
    FileDescriptorSet,
    compiler::{CodeGeneratorRequest, CodeGeneratorResponse},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::OnceCell,
};

use crate::fixture::soon;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/browser")
}

/// Generates the page's code once for all tests, by the stock plugin.
async fn generate() {
    static DONE: OnceCell<()> = OnceCell::const_new();
    DONE.get_or_init(run_plugin).await;
}

async fn run_plugin() {
    let plugin = folder().join("node_modules/.bin/protoc-gen-es");
    assert!(plugin.exists(), "the page's packages aren't installed: run `cargo xtask prepare`");
    let files = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).expect("our own schema").file;
    let request = CodeGeneratorRequest {
        file_to_generate: files.iter().map(|file| file.name().to_owned()).collect(),
        parameter: Some("target=js".to_owned()),
        proto_file: files,
        compiler_version: None,
    };
    let mut child = Command::new("node")
        .arg(plugin)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("node runs: install Node.js 20 or later");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(&request.encode_to_vec()).await.expect("the plugin reads");
    drop(input);
    let output = child.wait_with_output().await.expect("the plugin ends");
    let response = CodeGeneratorResponse::decode(output.stdout.as_slice()).expect("the plugin's answer");
    assert_eq!(response.error, None);
    for file in response.file {
        let path = folder().join("generated").join(file.name());
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        std::fs::write(path, file.content()).expect("written");
    }
}

pub(crate) struct Page {
    process: Child,
    commands: ChildStdin,
    reports: Lines<BufReader<ChildStdout>>,
    /// Reported, and not asked for yet.
    unheard: Vec<Value>,
}

impl Page {
    /// Opens the page, with the server it is to use.
    pub(crate) async fn open(url: &str) -> Self {
        generate().await;
        let mut process = Command::new("node")
            .arg("run.mjs")
            .current_dir(folder())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("node runs");
        let commands = process.stdin.take().expect("a pipe");
        let reports = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let mut page = Self { process, commands, reports, unheard: Vec::new() };
        page.until("the browser", |report| report["ready"] == true).await;
        page.tell(json!(["open", url])).await;
        page
    }

    pub(crate) async fn tell(&mut self, command: Value) {
        self.commands.write_all(format!("{command}\n").as_bytes()).await.expect("the page listens");
    }

    /// The next report under a name that has this field.
    pub(crate) async fn hear(&mut self, name: &str, field: &str) -> Value {
        let what = format!("{field} of {name}");
        self.until(&what, |report| report["name"] == name && report.get(field).is_some()).await
    }

    /// The next frame of this kind on a stream.
    pub(crate) async fn frame(&mut self, name: &str, kind: &str) -> Value {
        let what = format!("{kind} on {name}");
        self.until(&what, |report| report["name"] == name && report["frame"] == kind).await
    }

    /// The ids of so many envelopes on a stream.
    pub(crate) async fn ids(&mut self, name: &str, count: usize) -> Vec<u64> {
        let mut ids = Vec::new();
        while ids.len() < count {
            let frame = self.frame(name, "messages").await;
            ids.extend(frame["ids"].as_array().expect("ids").iter().filter_map(Value::as_u64));
        }
        ids
    }

    async fn until(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        if let Some(place) = self.unheard.iter().position(&wanted) {
            return self.unheard.remove(place);
        }
        soon(what, async {
            loop {
                let line = self.reports.next_line().await.expect("read").expect("the page goes on");
                let report: Value = serde_json::from_str(&line).expect("JSON");
                assert!(report.get("error").is_none(), "{report}");
                if wanted(&report) {
                    return report;
                }
                self.unheard.push(report);
            }
        })
        .await
    }

    /// Closes the page, as a person does.
    pub(crate) async fn leave(&mut self) {
        self.tell(json!(["leave"])).await;
        self.until("the page's end", |report| report["left"] == true).await;
    }

    /// Ends the browser.
    pub(crate) async fn close(mut self) {
        drop(self.commands);
        soon("the browser's end", self.process.wait()).await.expect("it ends");
    }
}
