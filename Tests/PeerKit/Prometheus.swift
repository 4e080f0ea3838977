import Foundation
import TestKit

/// Prometheus on loopback.
package final class Prometheus {
    private let reservation: FreePort
    private let process: ChildProcess

    /// Starts it with a configuration; ready when this returns. Rule files lie in `scratch`, as does its data.
    package init(configuration: String, in scratch: ScratchDirectory) throws {
        reservation = try FreePort()
        let path = try scratch.write("prometheus.yml", configuration)
        process = try ChildProcess(
            "prometheus",
            [
                "--config.file=\(path)", "--storage.tsdb.path=\(scratch.file("prometheus"))",
                "--web.listen-address=127.0.0.1:\(reservation.number)",
            ])
        try eventually("Prometheus is ready", every: .milliseconds(100)) {
            (try? WebClient(port: reservation.number).request("GET", "/-/ready").status) == 200
        }
    }

    deinit { stop() }

    /// Ends it.
    package func stop() { process.stop() }

    /// The `data` of an answer of its API.
    package func ask(_ call: String, _ parameters: [String: String]) throws -> JSONValue {
        let query = parameters.map { "\($0)=\(Self.encoded($1))" }.joined(separator: "&")
        let answer = try WebClient(port: reservation.number).request(
            "GET", "/api/v1/\(call)" + (query.isEmpty ? "" : "?" + query))
        guard answer.status == 200 else { throw PeerError("\(call): \(answer.status) \(answer.text)") }
        return answer.json["data"]
    }

    private static func encoded(_ text: String) -> String {
        text.addingPercentEncoding(withAllowedCharacters: .alphanumerics) ?? text
    }
}
