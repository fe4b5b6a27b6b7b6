//! A server of a test's own, made with the programs of the test server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use postgres::config::Host;
use postgres::{Client, NoTls};

use crate::{Database, setting};

/// A server in a folder of its own, which listens on a socket there; stopped and removed with the value.
pub struct Server {
    folder: PathBuf,
    programs: PathBuf,
    user: Option<String>,
    port: u16,
    role: String,
}

impl Server {
    /// A folder for a server, named after the test's database; nothing runs in it yet.
    pub fn new(database: &Database, label: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("{}_{label}", database.name));
        fs::create_dir(&folder).expect("a folder of that name is in the way");
        let data: String = crate::one(
            &mut database.connect(),
            "SELECT current_setting('data_directory')",
        );
        let owner = owner_of(Path::new(&data));
        // The server refuses root, so what touches its files runs as their owner.
        let user = (owner_of(Path::new("/proc/self")) != owner).then(|| user_name(owner));
        if user.is_some() {
            std::os::unix::fs::chown(&folder, Some(owner), None).expect("the folder can be given");
        }
        let config = database.config();
        Server {
            folder,
            programs: PathBuf::from(setting("BIN")),
            user,
            port: config.get_ports().first().copied().unwrap_or(5432),
            role: config.get_user().expect("the URL names a role").to_owned(),
        }
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let path = self.programs.join(program);
        let mut command = match &self.user {
            Some(user) => {
                let mut command = Command::new("runuser");
                command.args(["-u", user, "--"]).arg(path);
                command
            }
            None => Command::new(path),
        };
        let done = command
            .args(arguments)
            .env_remove("RUST_BACKTRACE")
            .output()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        assert!(
            done.status.success(),
            "{program}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
    }

    fn data(&self) -> String {
        self.folder.join("data").to_string_lossy().into_owned()
    }

    /// Fills the folder with a base backup of the test server, as a standby of it.
    pub fn base_backup(&self, database: &Database) {
        let host = match database.config().get_hosts().first() {
            Some(Host::Unix(folder)) => folder.to_string_lossy().into_owned(),
            Some(Host::Tcp(host)) => host.clone(),
            None => "localhost".into(),
        };
        let (port, data) = (self.port.to_string(), self.data());
        let arguments = [
            "-h", &host, "-p", &port, "-U", &self.role, "-D", &data, "-R", "-X", "stream", "-c",
            "fast",
        ];
        self.run("pg_basebackup", &arguments);
    }

    /// Fills the folder with an empty cluster.
    pub fn init(&self) {
        let data = self.data();
        self.run(
            "initdb",
            &[
                "-D",
                &data,
                "-U",
                &self.role,
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--no-sync",
            ],
        );
    }

    /// Starts the server. It shares the settings of what it was made from; only where it listens is its own.
    pub fn start(&self) {
        let own = self.folder.to_string_lossy().into_owned();
        let settings = self.folder.join("data/postgresql.auto.conf");
        let before = fs::read_to_string(&settings).unwrap_or_default();
        let port = self.port;
        fs::write(
            &settings,
            format!(
                "{before}\nlisten_addresses = ''\nunix_socket_directories = '{own}'\nport = {port}\nshared_buffers = '32MB'\nhot_standby = on\n"
            ),
        )
        .expect("settings can be written");
        let (data, log) = (self.data(), self.folder.join("log"));
        let log = log.to_string_lossy().into_owned();
        self.run(
            "pg_ctl",
            &["-D", &data, "-l", &log, "-w", "-t", "60", "start"],
        );
    }

    /// A session in a database of it.
    pub fn connect(&self, database: &str) -> Client {
        let mut config = postgres::Config::new();
        config
            .host_path(&self.folder)
            .port(self.port)
            .user(&self.role)
            .dbname(database);
        config.connect(NoTls).expect("the server can be reached")
    }

    /// Command line of a program that connects to a database of it.
    pub fn program(&self, name: &str, database: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.arg("--host").arg(&self.folder);
        command.arg("--port").arg(self.port.to_string());
        command.arg("--username").arg(&self.role);
        command.arg("--dbname").arg(database);
        command
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.folder.join("data/postmaster.pid").exists() {
            let data = self.data();
            self.run("pg_ctl", &["-D", &data, "-m", "immediate", "-w", "stop"]);
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn owner_of(path: &Path) -> u32 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .uid()
}

fn user_name(id: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").expect("the list of users");
    users
        .lines()
        .find_map(|line| {
            let mut fields = line.split(':');
            let (name, uid) = (fields.next()?, fields.nth(1)?);
            (uid.parse() == Ok(id)).then(|| name.to_owned())
        })
        .expect("the owner of the test server's files has a name")
}
