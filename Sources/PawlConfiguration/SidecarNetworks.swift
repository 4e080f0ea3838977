// Several networks in one file of a sidecar. The keys of a network stand below its name, over the common ones:
//
//     data: /home/me/.local/share/pawl
//     networks:
//       libera:
//         listen: [irc://127.0.0.1:6667]
//         upstream: {url: ircs://irc.libera.chat}
//       oftc:
//         listen: [irc://127.0.0.1:6668]
//         upstream: {url: ircs://irc.oftc.net}
//
// Keys are pinned by the names of one network, so each has a data directory of its own: its name below the common one,
// unless it says another.

import Yams

/// The networks of a sidecar's configuration file.
package enum SidecarNetworks {
    static let key = "networks"
    /// Ours: networks of one process. Each has a store and threads of its own.
    package static let limit = 32

    /// The directory of a network below the common one.
    package static func directory(of network: String, in common: String) -> String {
        common.hasSuffix("/") ? common + network : "\(common)/\(network)"
    }

    /// The names of the networks of a file, in their order; empty for a file of one network without a name.
    ///
    /// - Throws: ``ConfigurationError`` if the file cannot be read, or a name is no directory.
    package static func names(in path: String) throws(ConfigurationError) -> [String] {
        guard let root = try YAMLFile.root(path: path, called: "configuration")?.mapping,
            let (keyNode, value) = root.first(where: { $0.key.scalar?.string == key })
        else { return [] }
        let place = "`\(key)` in \(path) line \(keyNode.mark?.line ?? 1)"
        guard let mapping = value.mapping, !mapping.isEmpty else {
            throw ConfigurationError(
                .wrongType, "\(place) has no networks; expected a name for each, with its keys indented below it")
        }
        guard mapping.count <= limit else {
            throw ConfigurationError(
                .tooLarge, "\(place) has \(mapping.count) networks; at most \(limit) run in one process")
        }
        var names: [String] = []
        for (name, keys) in mapping {
            let line = name.mark?.line ?? 1
            guard let text = name.scalar?.string, isName(text) else {
                throw ConfigurationError(
                    .wrongValue,
                    "the name of a network in \(path) line \(line) is not of letters, digits, `-`, `_` and `.`; it is the "
                        + "name of a directory too")
            }
            guard keys.mapping != nil else {
                throw ConfigurationError(
                    .wrongType,
                    "the network `\(text)` in \(path) line \(line) has no keys; expected `listen` and `upstream`")
            }
            names.append(text)
        }
        return names
    }

    private static func isName(_ text: String) -> Bool {
        (1...64).contains(text.utf8.count) && text.utf8.first != UInt8(ascii: ".")
            && text.utf8.first != UInt8(ascii: "-")
            && text.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "."):
                    true
                default: false
                }
            }
    }

    /// Checks that networks share no listener and no directory.
    ///
    /// - Throws: ``ConfigurationError`` that names two networks.
    package static func check(
        _ networks: [(name: String, configuration: PawlConfiguration)]
    ) throws(ConfigurationError) {
        var listeners: [PawlConfiguration.Address: String] = [:]
        var directories: [String: String] = [:]
        for (name, configuration) in networks {
            for url in configuration.listen where url.port != 0 {
                if let other = listeners.updateValue(name, forKey: url.address), other != name {
                    throw ConfigurationError(
                        .conflict,
                        "the networks `\(other)` and `\(name)` both listen on `\(url.address)`; give each a `listen` of its own"
                    )
                }
            }
            if let other = directories.updateValue(name, forKey: configuration.data) {
                throw ConfigurationError(
                    .conflict,
                    "the networks `\(other)` and `\(name)` both have the directory `\(configuration.data)`; give each a `data` "
                        + "of its own, or `data` above `\(key)`")
            }
        }
    }
}
