import Foundation
import PeerKit
import Synchronization
import TestKit
import TestThreads

/// A server that push notices go to, in a process of its own: it records what comes, and answers as the test says.
final class PushReceiver: Sendable {
    /// One notice that has come.
    struct Notice: Decodable, Sendable {
        var path: String
        var headers: [String: String]
        var body: String
    }

    private static let program = """
        from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
        from json import dumps
        from ssl import PROTOCOL_TLS_SERVER, SSLContext
        from sys import argv, stderr
        from time import sleep
        port, control, certificate, key = int(argv[1]), argv[2], argv[3], argv[4]
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                print(dumps({"path": self.path, "headers": dict(self.headers), "body": body}), flush=True)
                status, pause = open(control).read().split()
                sleep(float(pause))
                self.send_response(int(status))
                self.send_header("Content-Length", "0")
                self.end_headers()
            def log_message(self, *arguments): pass
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        server.daemon_threads = True
        if certificate:
            context = SSLContext(PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        print("ready", file=stderr, flush=True)
        server.serve_forever()
        """

    private let reservation: FreePort
    private let scratch: ScratchDirectory
    private let certificate: Certificate?
    private let child = Mutex<ChildProcess?>(nil)
    private let earlier = Mutex("")

    /// A receiver that is down.
    init(usesTLS: Bool = false) throws {
        (reservation, scratch) = (try FreePort(), try ScratchDirectory())
        certificate = usesTLS ? try Certificate(in: scratch) : nil
        try "correct-horse\n".write(toFile: scratch.file("secret"), atomically: true, encoding: .utf8)
    }

    deinit { child.withLock { _ = $0?.stop() } }

    /// The keys of the configuration for this receiver.
    var settings: [String: String] {
        var settings = [
            "PAWL_PUSH_URL": "\(certificate == nil ? "http" : "https")://localhost:\(reservation.number)/wake?app=1",
            "PAWL_PUSH_SECRET_FILE": scratch.file("secret"),
        ]
        settings["PAWL_PUSH_CA"] = certificate?.certificatePath
        return settings
    }

    /// Sets the answers from now on, and how long each takes.
    func answer(_ status: Int, after seconds: Double = 0) throws {
        try "\(status) \(seconds)".write(toFile: scratch.file("control"), atomically: true, encoding: .utf8)
    }

    func start(_ status: Int = 200) async throws {
        try answer(status)
        try await blocking { [self] in
            let child = try ChildProcess(
                "python3",
                [
                    "-c", Self.program, "\(reservation.number)", scratch.file("control"),
                    certificate?.certificatePath ?? "", certificate?.keyPath ?? "",
                ])
            self.child.withLock { $0 = child }
            try eventually("the receiver listens") { child.stderr.contains("ready") || !child.isRunning }
        }
    }

    func stop() {
        let child = child.withLock { child in
            defer { child = nil }
            return child
        }
        _ = child?.stop()
        earlier.withLock { $0 += child?.stdout ?? "" }
    }

    var notices: [Notice] {
        let text = earlier.withLock { $0 } + (child.withLock { $0 }?.stdout ?? "")
        return text.split(separator: "\n").compactMap { try? JSONDecoder().decode(Notice.self, from: Data($0.utf8)) }
    }
}
