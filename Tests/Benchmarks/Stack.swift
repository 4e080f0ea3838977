import Glibc

/// A sink and what stands in front of it, each in a process of its own.
struct Stack {
    let variant: Variant
    let isTLS: Bool
    /// Where clients connect.
    let target: LoadClient.Target
    /// The process that is accounted; none where clients connect to the sink itself.
    let proxy: ChildProcess?
    private let sink: ChildProcess
    /// Where the program's files are: its store, its configuration, what it has printed.
    let directory: String

    /// Starts both and waits until they are ready.
    init(
        _ variant: Variant, isTLS: Bool = false, isBare: Bool = false, logsIn: Bool = false, on workbench: Workbench
    ) throws {
        self.variant = variant
        self.isTLS = isTLS
        let upstream = try Ports.free()
        let directory = "\(workbench.directory)/\(variant.rawValue)-\(upstream)"
        self.directory = directory
        guard mkdir(directory, 0o700) == 0 else { throw Failure("\(directory): \(lastError())") }
        // A gateway that let the texts through would be fast: the sink behind `hosted` refuses them.
        let flags =
            (isBare ? ["--bare"] : []) + (variant == .hosted ? ["--sealed"] : []) + (logsIn ? ["--login"] : [])
        self.sink = try ChildProcess.again(
            ["relay-sink", "--port", "\(upstream)"] + flags, log: "\(directory)/sink.log")
        do {
            try self.sink.wait(forWord: "ready")
            let port = variant == .direct ? upstream : try Ports.free()
            self.target = .init(port: port, isTLS: isTLS)
            let front = Front(
                port: port, upstream: upstream, certificate: isTLS ? try Certificate(in: directory) : nil,
                directory: directory, workbench: workbench)
            self.proxy = try front.start(variant)
        } catch {
            self.sink.stop()
            throw error
        }
    }

    /// Ends both processes.
    func stop() {
        self.proxy?.stop()
        self.sink.stop()
    }
}

/// How each proxy is started between two ports of 127.0.0.1.
private struct Front {
    let port: Int
    let upstream: Int
    let certificate: Certificate?
    let directory: String
    let workbench: Workbench

    func start(_ variant: Variant) throws -> ChildProcess? {
        let process: ChildProcess
        switch variant {
        case .direct:
            return nil
        case .haproxy:
            process = try self.startHAProxy()
        case .byteRelay:
            process = try ChildProcess.again(
                ["byte-relay", "--port", "\(self.port)", "--upstream", "\(self.upstream)"],
                log: "\(self.directory)/byte-relay.log")
        case .off, .observe, .hosted:
            process = try self.startPawl(variant.rawValue)
        }
        do {
            if variant == .haproxy {
                try process.wait(forPort: self.port)
            } else {
                try process.wait(forWord: "ready")
            }
        } catch {
            process.stop()
            throw error
        }
        return process
    }

    private func startHAProxy() throws -> ChildProcess {
        let path = "\(self.directory)/haproxy.cfg"
        let tls = self.certificate.map { " ssl crt \($0.both)" } ?? ""
        try writeText(
            """
            global
                maxconn \(self.workbench.clientLimit)
                no strict-limits
            defaults
                mode tcp
                maxconn \(self.workbench.clientLimit)
                timeout connect 10s
                timeout client 1h
                timeout server 1h
            listen irc
                bind 127.0.0.1:\(self.port)\(tls) backlog 4096
                server sink 127.0.0.1:\(self.upstream)

            """, to: path)
        return try ChildProcess(
            self.workbench.haproxy, ["-db", "-f", path], log: "\(self.directory)/haproxy.log")
    }

    private func startPawl(_ policy: String) throws -> ChildProcess {
        guard let pawl = self.workbench.pawl else { throw Failure("pawl is not built") }
        var variables = [
            "PAWL_METRICS_LISTEN": "",
            "PAWL_UPSTREAM_FLOOD_LINES_PER_SECOND": "0",
            "PAWL_LIMITS_CONNECTIONS": "\(max(10_000, self.workbench.clientLimit))",
        ]
        if let certificate = self.certificate {
            variables["PAWL_TLS_CERTIFICATE"] = certificate.certificate
            variables["PAWL_TLS_KEY"] = certificate.key
        }
        return try ChildProcess(
            pawl,
            [
                "serve", "--listen", "\(self.certificate == nil ? "irc" : "ircs")://127.0.0.1:\(self.port)",
                "--upstream", "irc://127.0.0.1:\(self.upstream)", "--policy", policy, "--data",
                "\(self.directory)/data",
            ], environment: variables, log: "\(self.directory)/pawl.log")
    }
}

/// A self-signed certificate, made for one run.
struct Certificate {
    let certificate: String
    let key: String
    /// One file with both, as HAProxy wants it.
    let both: String

    init(in directory: String) throws {
        self.certificate = "\(directory)/certificate.pem"
        self.key = "\(directory)/key.pem"
        self.both = "\(directory)/both.pem"
        let openssl = try ChildProcess(
            "/usr/bin/env",
            [
                "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                "-keyout", self.key, "-out", self.certificate,
            ], log: "\(directory)/openssl.log")
        _ = try openssl.waitForEnd()
        try writeText(try readText(self.certificate) + readText(self.key), to: self.both)
    }
}
