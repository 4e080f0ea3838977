import Foundation
import JSONGateway
import PawlConfiguration
import Testing

@testable import MappingFile

/// The top of the package.
let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent().deletingLastPathComponent()

func shipped(_ name: String) throws -> Mapping {
    try MappingFile.read(path: root.appending(path: "config/mappings/\(name).yaml").path)
}

/// Reads a text as a mapping's file; messages call that file FILE.
func mapping(_ yaml: String) throws -> Mapping { try mapping(Data(yaml.utf8)) }

func mapping(_ bytes: Data) throws -> Mapping {
    let path = NSTemporaryDirectory() + "pawl-mapping-" + UUID().uuidString + ".yaml"
    try bytes.write(to: URL(filePath: path))
    defer { try? FileManager.default.removeItem(atPath: path) }
    do throws(ConfigurationError) {
        return try MappingFile.read(path: path)
    } catch {
        throw ConfigurationError(
            problems: error.problems.map { .init(code: $0.code, message: $0.message.replacing(path, with: "FILE")) })
    }
}

/// What is wrong with a mapping; nothing where nothing is.
func problems(_ yaml: String) -> [String] {
    do {
        _ = try mapping(yaml)
        return []
    } catch let error as ConfigurationError {
        return error.problems.map(\.message)
    } catch {
        return ["\(error)"]
    }
}
