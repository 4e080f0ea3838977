import Foundation
import Glibc
import TestKit

/// nginx as a reverse proxy on loopback, as people who compare it with the gateway would set it up.
package final class Nginx {
    private let scratch: ScratchDirectory
    private let reservation: FreePort
    private let process: ChildProcess

    package var port: UInt16 { reservation.number }

    /// Starts it in front of `backend`; ready when this returns. Connections to the backend are kept and used again.
    ///
    /// - Parameter certificate: nil for plain HTTP.
    package init(backend: UInt16, workers: Int = 1, certificate: Certificate? = nil) throws {
        scratch = try ScratchDirectory()
        reservation = try FreePort()
        if let certificate { try Self.install(certificate, in: scratch) }
        let path = try scratch.write(
            "nginx.conf", Self.configuration(reservation.number, backend, workers, isSecure: certificate != nil))
        process = try ChildProcess("nginx", ["-p", scratch.path, "-c", path, "-e", "stderr", "-g", "daemon off;"])
        try process.waitUntilListening(reservation.number)
    }

    deinit {
        process.stop()
    }

    /// Presents another certificate to new connections, as after a renewal. Connections that are idle are closed.
    package func present(_ certificate: Certificate) throws {
        try Self.install(certificate, in: scratch)
        let before = workers
        process.kill(SIGHUP)
        try eventually("other workers of nginx") { !workers.isEmpty && workers.isDisjoint(with: before) }
    }

    private var workers: Set<Substring> {
        let path = "/proc/\(process.pid)/task/\(process.pid)/children"
        return Set(
            String(decoding: FileManager.default.contents(atPath: path) ?? Data(), as: UTF8.self).split(separator: " "))
    }

    private static func install(_ certificate: Certificate, in scratch: ScratchDirectory) throws {
        for (source, name) in [(certificate.certificatePath, "certificate.pem"), (certificate.keyPath, "key.pem")] {
            try scratch.write(name, String(contentsOfFile: source, encoding: .utf8))
        }
    }

    /// All paths are below the prefix, so that nobody has to be root, and nothing of the distribution's own is used.
    private static func configuration(_ port: UInt16, _ backend: UInt16, _ workers: Int, isSecure: Bool) -> String {
        let secure = "ssl_certificate certificate.pem; ssl_certificate_key key.pem;"
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map { "\($0)_temp_path \($0);" }
        return """
            \(getuid() == 0 ? "user root;" : "")
            worker_processes \(workers);
            pid nginx.pid;
            events { worker_connections 8192; }
            http {
                access_log off;
                \(temporary.joined(separator: "\n    "))
                client_max_body_size 64m;
                keepalive_requests 1000000;
                map $http_upgrade $connection_upgrade { default upgrade; '' ''; }
                upstream backend {
                    server 127.0.0.1:\(backend);
                    keepalive 64;
                    keepalive_requests 1000000;
                }
                server {
                    listen 127.0.0.1:\(port)\(isSecure ? " ssl" : "");
                    \(isSecure ? secure : "")
                    location / {
                        proxy_pass http://backend;
                        proxy_http_version 1.1;
                        proxy_set_header Host $http_host;
                        proxy_set_header Upgrade $http_upgrade;
                        proxy_set_header Connection $connection_upgrade;
                        proxy_read_timeout 1h;
                    }
                }
            }

            """
    }
}
