package import Foundation

/// A real gateway in front of the backend of an app that knows nothing of encryption.
package final class GatewayLab: Sendable {
    package let backend: ChatBackendProcess
    package let gateway: PawlProcess

    /// Starts both. It waits, so call it outside the threads of tasks.
    ///
    /// - Parameters:
    ///   - settings: further keys of the configuration, as variables of the environment.
    ///   - metrics: where the metrics are; empty for nowhere.
    package init(policy: String, settings: [String: String], metrics: String) throws {
        backend = try ChatBackendProcess()
        let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
            .deletingLastPathComponent()
        var options = PawlProcess.Options(policy: policy, arguments: ["--metrics", metrics])
        (options.listenScheme, options.upstreamScheme) = ("http", "http")
        let mapping = root.appending(path: "config/mappings/generic.yaml").path
        options.environment = settings.merging(["PAWL_MAPPING": mapping]) { $1 }
        gateway = try PawlProcess(upstream: backend.port, options)
    }

    /// The address of the gateway.
    package var url: URL {
        get throws {
            guard let url = URL(string: "http://127.0.0.1:\(gateway.port)") else { throw URLError(.badURL) }
            return url
        }
    }

    /// The token of a new login of a person, whose account is made if there is none. It waits.
    package func token(of name: String) throws -> String { try ChatPerson(name, port: gateway.port).token }

    package func stop() {
        gateway.stop()
        backend.stop()
    }
}
