import Glibc
import NIOCore
import NIOPosix

/// The whole program in front of a backend that speaks HTTP, with the generic mapping: requests beside nginx, frames of
/// WebSockets beside HAProxy.
struct ProxyTable {
    /// What stands between the clients and the backend.
    enum Front: String {
        case direct, nginx, haproxy = "HAProxy", off = "pawl, `off`", observe = "pawl, `observe`",
            hosted = "pawl, `hosted`"

        /// The policy, where this is ours.
        var policy: String? {
            switch self {
            case .direct, .nginx, .haproxy: nil
            case .off: "off"
            case .observe: "observe"
            case .hosted: "hosted"
            }
        }
    }

    let workbench: Workbench
    let nginx: String?
    let h2load: String?
    let group: MultiThreadedEventLoopGroup
    let isQuick: Bool

    func print() throws {
        let ours: [Front] = [.off, .observe, .hosted]
        try self.table(
            "HTTP requests without text", [.direct, .nginx] + ours, .profile, peer: .nginx, unit: "requests",
            "Answers of \(WebLoad.answerSize) bytes.")
        try self.table(
            "HTTP requests for history", [.direct, .nginx] + ours, .history, peer: .nginx, unit: "requests",
            "20 messages of \(WebLoad.textSize) bytes in each answer; under `hosted` all are envelopes, and are opened."
        )
        try self.table(
            "Messages by POST", [.direct, .nginx] + ours, .post, peer: .nginx, unit: "requests",
            "Texts of \(WebLoad.textSize) bytes. Under `hosted` each is sealed, committed to the queue, sent, and answered when "
                + "the backend has it.")
        try self.table(
            "WebSocket frames, there and back", [.direct, .haproxy] + ours, .frame, window: 8, peer: .haproxy,
            unit: "frames",
            "8 frames under way in each connection, texts of \(WebLoad.textSize) bytes. Under `hosted` each is sealed on its way "
                + "there, committed to the queue, sent, acknowledged by the backend, and opened on its way back.")
        try self.printShares()
        try self.printHTTP2()
    }

    private func table(
        _ title: String, _ fronts: [Front], _ kind: WebLoad.Kind, window: Int = 1, peer: Front, unit: String,
        _ note: String
    ) throws {
        var table = MarkdownTable(
            title,
            [
                "way", "\(unit) per second", "median µs", "p99 µs", "proxy's CPU µs each", "of \(peer.rawValue)'s rate",
                "of its p99",
            ])
        let plan = WebLoad.Plan(
            kind: kind, window: window, warmUp: .seconds(self.isQuick ? 2 : 3),
            duration: self.isQuick ? .seconds(2) : .seconds(6))
        var rounds: [Front: [Measurement]] = [:]
        // One after the other in each round, so that a slow minute of the machine meets all.
        for round in 0..<(self.isQuick ? 1 : 5) {
            for front in fronts where front != .nginx || self.nginx != nil {
                progress("proxy: \(title), \(front.rawValue), round \(round + 1)")
                rounds[front, default: []].append(Measurement.attempt { try self.measure(front, plan) })
            }
        }
        let marks = rounds[peer].map(Measurement.init(medianOf:))
        for front in fronts {
            guard let measured = rounds[front] else { continue }
            let median = Measurement(medianOf: measured)
            let isOurs = front.policy != nil
            let rate = isOurs ? median.messagesPerSecond / (marks?.messagesPerSecond ?? .nan) : .nan
            let tail = isOurs ? median.tailLatency / (marks?.tailLatency ?? .nan) : .nan
            table.add([
                front.rawValue, median.messagesPerSecond.text(), median.medianLatency.text(), median.tailLatency.text(),
                median.processorTime.text(1), rate.text(2), tail.text(2),
            ])
            if !median.complaint.isEmpty { table.note("\(front.rawValue): \(median.complaint)") }
        }
        table.note("\(WebLoad.people) people with a connection each, kept, one request after the other. \(note)")
        table.note(
            "`pawl serve` with config/mappings/generic.yaml, metrics off. Load, proxy and backend share the machine; nginx and "
                + "pawl may use \(System.coreCount) cores each.")
        table.print()
    }

    private func measure(_ front: Front, _ plan: WebLoad.Plan) throws -> Measurement {
        let (port, proxy, backend, _) = try self.start(front)
        defer {
            proxy?.stop()
            backend.stop()
        }
        var times: [Double] = []
        var measurement = try WebLoad(group: self.group).measure(port, plan) {
            times.append(try proxy?.familyTime() ?? .nan)
        }
        let count = measurement.messagesPerSecond * Double(plan.duration.nanoseconds) / 1e9
        measurement.processorTime = (times[1] - times[0]) / count
        return measurement
    }

    /// Starts a backend, and what stands in front of it.
    ///
    /// - Returns: with them the port to speak to, and a directory of their own.
    func start(
        _ front: Front, isTLS: Bool = false
    ) throws -> (port: Int, proxy: ChildProcess?, backend: ChildProcess, directory: String) {
        let upstream = try Ports.free()
        let directory = "\(self.workbench.directory)/proxy-\(upstream)"
        guard mkdir(directory, 0o700) == 0 else { throw Failure("\(directory): \(lastError())") }
        let backend = try ChildProcess.again(
            ["http-backend", "--port", "\(upstream)"] + (front == .hosted ? ["--acknowledges"] : []),
            log: "\(directory)/backend.log")
        do {
            try backend.wait(forWord: "ready")
            let port = front == .direct ? upstream : try Ports.free()
            let certificate = isTLS ? try Certificate(in: directory) : nil
            let proxy = try self.start(front, port, upstream, directory, certificate)
            return (port, proxy, backend, directory)
        } catch {
            backend.stop()
            throw error
        }
    }

    private func start(
        _ front: Front, _ port: Int, _ upstream: Int, _ directory: String, _ certificate: Certificate?
    ) throws -> ChildProcess? {
        switch front {
        case .direct: return nil
        case .off, .observe, .hosted:
            return try self.startPawl(front.policy ?? "", port, upstream, directory, certificate)
        case .haproxy:
            try writeText(
                """
                global
                    maxconn 10000
                    no strict-limits
                defaults
                    mode http
                    timeout connect 10s
                    timeout client 1h
                    timeout server 1h
                    timeout tunnel 1h
                listen web
                    bind 127.0.0.1:\(port) backlog 4096
                    option forwardfor
                    server backend 127.0.0.1:\(upstream)

                """, to: "\(directory)/haproxy.cfg")
            let process = try ChildProcess(
                self.workbench.haproxy, ["-db", "-f", "\(directory)/haproxy.cfg"], log: "\(directory)/haproxy.log")
            try process.wait(forPort: port)
            return process
        case .nginx:
            return try self.startNginx(port, upstream, directory, certificate)
        }
    }

    private func startPawl(
        _ policy: String, _ port: Int, _ upstream: Int, _ directory: String, _ certificate: Certificate?
    ) throws -> ChildProcess {
        guard let pawl = self.workbench.pawl else { throw Failure("pawl is not built") }
        var variables = ["PAWL_METRICS_LISTEN": "", "PAWL_MAPPING": Self.mapping]
        if let certificate {
            variables["PAWL_TLS_CERTIFICATE"] = certificate.certificate
            variables["PAWL_TLS_KEY"] = certificate.key
        }
        let process = try ChildProcess(
            pawl,
            [
                "serve", "--listen", "\(certificate == nil ? "http" : "https")://127.0.0.1:\(port)", "--upstream",
                "http://127.0.0.1:\(upstream)", "--policy", policy, "--data", "\(directory)/data",
            ], environment: variables, log: "\(directory)/pawl.log")
        try process.wait(forWord: "ready")
        return process
    }

    private static let mapping =
        #filePath.split(separator: "/").dropLast(3).map { "/\($0)" }.joined()
        + "/config/mappings/generic.yaml"

    private func startNginx(
        _ port: Int, _ upstream: Int, _ directory: String, _ certificate: Certificate?
    ) throws -> ChildProcess? {
        guard let nginx = self.nginx else { return nil }
        let tls = certificate.map { "ssl_certificate \($0.certificate); ssl_certificate_key \($0.key);" } ?? ""
        let user = getuid() == 0 ? "user root;" : ""
        try writeText(
            """
            \(user)
            daemon off;
            worker_processes \(System.coreCount);
            pid \(directory)/nginx.pid;
            error_log \(directory)/error.log;
            events { worker_connections 4096; }
            http {
                access_log off;
                client_body_temp_path \(directory)/body;
                proxy_temp_path \(directory)/temporary;
                fastcgi_temp_path \(directory)/fastcgi;
                uwsgi_temp_path \(directory)/uwsgi;
                scgi_temp_path \(directory)/scgi;
                keepalive_requests 100000000;
                upstream backend {
                    server 127.0.0.1:\(upstream);
                    keepalive 256;
                    keepalive_requests 100000000;
                }
                server {
                    listen 127.0.0.1:\(port)\(certificate == nil ? "" : " ssl http2") backlog=4096;
                    \(tls)
                    location / {
                        proxy_pass http://backend;
                        proxy_http_version 1.1;
                        proxy_set_header Connection "";
                        proxy_set_header Host $host;
                        proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
                        proxy_set_header X-Forwarded-Proto $scheme;
                    }
                }
            }

            """, to: "\(directory)/nginx.conf")
        let process = try ChildProcess(
            nginx, ["-p", directory, "-e", "\(directory)/error.log", "-c", "\(directory)/nginx.conf"],
            log: "\(directory)/nginx.log")
        try process.wait(forPort: port)
        return process
    }
}

extension ChildProcess {
    /// Processor time of the process and its children, in microseconds.
    func familyTime() throws -> Double {
        let children = try readText("/proc/\(self.pid)/task/\(self.pid)/children").split(separator: " ")
        return try children.reduce(try self.processorTime()) { sum, child in
            let text = try readText("/proc/\(child)/stat")
            let fields = text[(text.lastIndex(of: ")") ?? text.startIndex)...].split(separator: " ")
            guard fields.count > 13, let user = Double(fields[12]), let system = Double(fields[13]) else { return sum }
            return sum + (user + system) * 1e6 / Double(sysconf(Int32(_SC_CLK_TCK)))
        }
    }
}
