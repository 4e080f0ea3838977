// Suggestions for mistyped commands. Those for options are ArgumentParser's.

import ArgumentParser
import PawlConfiguration

/// Finds the command that an operator meant.
enum MistypedCommand {
    /// The command that was probably meant, as it is typed; nil if the words begin with a known command, or with none
    /// that is like one.
    static func meant(_ words: [String]) -> String? {
        let (type, path, next) = known(words)
        guard let next else { return nil }
        let names = subcommands(of: type).map(\.name)
        guard !names.isEmpty else { return nil }
        if let nearest = NearestName.of(next, among: names) { return (path + [nearest]).joined(separator: " ") }
        // A subcommand without its parent: `repair` for `queue repair`.
        let deeper = subcommands(of: type).flatMap { parent in
            subcommands(of: parent.type).filter { $0.name == next }.map { path + [parent.name, $0.name] }
        }
        return deeper.count == 1 ? deeper[0].joined(separator: " ") : nil
    }

    /// The word that names no command; nil if the words begin with a known one.
    static func unknown(_ words: [String]) -> String? { known(words).next }

    /// The command that shows the help for the known part of the words.
    static func help(_ words: [String]) -> String {
        let path = known(words).path
        return ([path[0], "help"] + path.dropFirst()).joined(separator: " ")
    }

    /// The command that the words begin with, and the first word behind it that could name one; nil if there is none.
    private static func known(
        _ words: [String]
    ) -> (type: any ParsableCommand.Type, path: [String], next: String?) {
        var type: any ParsableCommand.Type = Pawl.self
        var path = [Pawl._commandName]
        for word in words {
            guard !word.hasPrefix("-") else { break }
            guard let found = subcommands(of: type).first(where: { $0.name == word }) else { return (type, path, word) }
            type = found.type
            path.append(word)
        }
        return (type, path, nil)
    }

    private static func subcommands(
        of type: any ParsableCommand.Type
    ) -> [(name: String, type: any ParsableCommand.Type)] {
        type.configuration.subcommands.filter { $0.configuration.shouldDisplay }.map { ($0._commandName, $0) }
    }
}
