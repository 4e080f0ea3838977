import Foundation
import Testing

@testable import PawlConfiguration

/// A directory of its own for one test, gone afterwards.
final class Folder {
    let path: String

    init() throws {
        self.path = NSTemporaryDirectory() + "pawl-configuration-" + UUID().uuidString
        try FileManager.default.createDirectory(atPath: self.path, withIntermediateDirectories: true)
    }

    deinit { try? FileManager.default.removeItem(atPath: self.path) }

    /// Writes a file and returns its path.
    func write(_ name: String, _ text: String) throws -> String {
        let path = "\(self.path)/\(name)"
        try Data(text.utf8).write(to: URL(filePath: path))
        return path
    }
}

/// The chat protocols of the program.
let protocols: [ChatProtocol] = [.irc, .json]

/// Reads `yaml` as a file; messages call that file `FILE` and the folder around it `FOLDER`.
func load(
    _ yaml: String? = nil, _ environment: [String: String] = [:],
    overrides: PawlConfiguration.Overrides = .init(), with files: [String: String] = [:]
) throws -> PawlConfiguration {
    try report(yaml, environment, overrides: overrides, with: files).configuration
}

func report(
    _ yaml: String? = nil, _ environment: [String: String] = [:],
    overrides: PawlConfiguration.Overrides = .init(), with files: [String: String] = [:]
) throws -> ConfigurationReport {
    let folder = try Folder()
    for (name, text) in files { _ = try folder.write(name, text) }
    let file = try yaml.map { try folder.write("pawl.yaml", $0.replacing("FOLDER", with: folder.path)) }
    do throws(ConfigurationError) {
        return try ConfigurationReport(
            file: file, environment: environment, overrides: overrides, protocols: protocols)
    } catch {
        throw ConfigurationError(
            problems: error.problems.map { problem in
                let message = problem.message
                    .replacing("\(folder.path)/pawl.yaml", with: "FILE").replacing(folder.path, with: "FOLDER")
                return .init(code: problem.code, message: message)
            })
    }
}

/// The messages with which a configuration is refused; none if it is not.
func messages(
    _ yaml: String? = nil, _ environment: [String: String] = [:],
    overrides: PawlConfiguration.Overrides = .init(), with files: [String: String] = [:]
) throws -> [String] {
    try problems(yaml, environment, overrides: overrides, with: files).map(\.message)
}

func problems(
    _ yaml: String? = nil, _ environment: [String: String] = [:],
    overrides: PawlConfiguration.Overrides = .init(), with files: [String: String] = [:]
) throws -> [ConfigurationError.Problem] {
    do {
        _ = try load(yaml, environment, overrides: overrides, with: files)
        return []
    } catch let error as ConfigurationError {
        return error.problems
    }
}

/// The folder of the files that the project delivers.
let deliveredFolder = URL(filePath: #filePath).resolvingSymlinksInPath()
    .deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent().appending(path: "config").path
