import Yams

/// A YAML file as texts, lists and maps with their lines, for files with a grammar of their own.
package struct ConfigurationTree: Sendable, Equatable {
    package enum Value: Sendable, Equatable {
        case nothing
        case text(String)
        case list([ConfigurationTree])
        /// In the order of the file, without duplicate keys.
        case map([(key: String, value: ConfigurationTree)])

        package static func == (left: Self, right: Self) -> Bool {
            switch (left, right) {
            case (.nothing, .nothing): true
            case (.text(let left), .text(let right)): left == right
            case (.list(let left), .list(let right)): left == right
            case (.map(let left), .map(let right)): left.elementsEqual(right) { $0 == $1 }
            default: false
            }
        }
    }

    package let value: Value
    /// Counted from 1. The value of a key has the line of the key.
    package let line: Int

    /// Ours: texts, lists and maps in one file. Those of an anchor count again for each alias.
    package static let nodeLimit = 1 << 15
    /// Ours: depth of nested lists and maps.
    package static let depthLimit = 16

    package init(_ value: Value, line: Int) { (self.value, self.line) = (value, line) }

    /// Reads a file.
    ///
    /// - Parameter name: the kind of file, for error messages: `mapping`.
    package init(path: String, called name: String) throws(ConfigurationError) {
        guard let root = try YAMLFile.root(path: path, called: name) else {
            self.init(.nothing, line: 1)
            return
        }
        var count = 0
        self = try Self.tree(root, line: root.mark?.line ?? 1, depth: 0, &count, path)
    }

    /// The value in words, for messages.
    package var words: String {
        switch value {
        case .nothing: "without a value"
        case .text(let text): quoted(text)
        case .list: "a list"
        case .map: "a map"
        }
    }

    private static func tree(
        _ node: Node, line: Int, depth: Int, _ count: inout Int, _ path: String
    ) throws(ConfigurationError) -> Self {
        count += 1
        guard count <= nodeLimit else {
            throw ConfigurationError(.tooLarge, "\(path) has more than \(nodeLimit) values; is it the right file?")
        }
        guard depth <= depthLimit else {
            throw ConfigurationError(.syntax, "\(path) line \(line) is nested too deeply in lists and maps")
        }
        switch node {
        case .scalar(let scalar): return Self(YAMLFile.isNull(node) ? .nothing : .text(scalar.string), line: line)
        case .sequence(let sequence):
            var items: [Self] = []
            for item in sequence {
                // An item that comes from an anchor has the line of the anchor, above the key.
                items.append(try tree(item, line: max(line, item.mark?.line ?? line), depth: depth + 1, &count, path))
            }
            return Self(.list(items), line: line)
        case .mapping(let mapping):
            var members: [(key: String, value: Self)] = []
            var seen: Set<String> = []
            for (key, value) in mapping {
                let line = max(line, key.mark?.line ?? line)
                guard let name = key.scalar?.string else {
                    throw ConfigurationError(.syntax, "a key in \(path) line \(line) is no text; expected a name")
                }
                guard seen.insert(name).inserted else {
                    throw ConfigurationError(
                        .duplicateKey, "\(quoted(name)) is written twice in \(path), the second time in line \(line)")
                }
                members.append((name, try tree(value, line: line, depth: depth + 1, &count, path)))
            }
            return Self(.map(members), line: line)
        case .alias:
            throw ConfigurationError(.syntax, "\(path) line \(line) names an anchor that does not exist")
        }
    }
}
