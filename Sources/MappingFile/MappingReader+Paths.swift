import JSONCodec
import JSONGateway
import PawlConfiguration

/// Reads paths in a document, and sources in a request.
extension MappingReader {
    static let pathExample = "a path as `message.text` or `messages[*]`"

    mutating func path(_ tree: ConfigurationTree, _ place: String) -> JSONPath? {
        text(tree, place, Self.pathExample).flatMap { path($0, place, tree.line) }
    }

    mutating func path(_ text: String, _ place: String, _ line: Int) -> JSONPath? {
        do throws(JSONPathError) {
            return try JSONPath(text)
        } catch {
            wrong(
                "`\(place)`", line, "is no path: \(error.reason) (character \(error.position + 1) of \(quoted(text)))")
            return nil
        }
    }

    /// A path that leads to one value at most.
    mutating func single(_ tree: ConfigurationTree, _ place: String) -> JSONPath? {
        path(tree, place).flatMap { single($0, place, tree.line) }
    }

    mutating func single(_ path: JSONPath, _ place: String, _ line: Int) -> JSONPath? {
        guard !path.isPlural else {
            wrong("`\(place)`", line, "can lead to several values; expected a path without * and without conditions")
            return nil
        }
        return path
    }

    /// A path of members only, so that a value can be written there.
    mutating func members(_ tree: ConfigurationTree, _ place: String) -> JSONPath? {
        path(tree, place).flatMap { members($0, place, tree.line) }
    }

    mutating func members(_ path: JSONPath, _ place: String, _ line: Int) -> JSONPath? {
        guard let names = path.memberNames, !names.isEmpty else {
            wrong(
                "`\(place)`", line,
                "is \(quoted(path.text)); expected names with dots only, because something is put there: `content.text`"
            )
            return nil
        }
        return path
    }

    static let sourceExample =
        "a path in the message (`room.id`), `path NAME` for what stands in braces in the route, `query NAME`, "
        + "`of NAME` for the conversation of the message with that id, `container PATH`, or `name of container`"

    /// The source of a value, in the message or around it.
    mutating func source(_ tree: ConfigurationTree, _ place: String) -> ValueSource? {
        text(tree, place, Self.sourceExample).flatMap { source($0, place, tree.line) }
    }

    mutating func source(_ text: String, _ place: String, _ line: Int) -> ValueSource? {
        if text == "name of container" { return .containerName }
        let words = text.split(separator: " ", maxSplits: 1).map(String.init)
        if words.count == 2 {
            switch words[0] {
            case "path": return .capture(words[1])
            case "query": return .query(words[1])
            case "of": return .ofMessage(words[1])
            case "container":
                return path(words[1], place, line).flatMap { single($0, place, line) }.map { .container($0) }
            default:
                // A condition may have spaces as well.
                guard text.contains("[") || text.hasPrefix("\"") || text.hasPrefix("'") else {
                    wrong("`\(place)`", line, "is \(quoted(text)); expected \(Self.sourceExample)")
                    return nil
                }
            }
        }
        return path(text, place, line).flatMap { single($0, place, line) }.map { .message($0) }
    }
}
