import Foundation
import PeerKit

/// A command of a page: a line of a block without a language, or several that end with a backslash.
struct PageCommand {
    static let pages = ["README.md", "deploy/OPERATIONS.md"]

    var place: String
    var text: String
    var comment: String

    func begins(_ words: String) -> Bool { text == words || text.hasPrefix(words + " ") }

    static func all(of page: String) throws -> [PageCommand] {
        var found: [PageCommand] = []
        let text = try String(contentsOfFile: "\(PackageMachine.sources)/\(page)", encoding: .utf8)
        for (index, block) in text.components(separatedBy: "\n```").enumerated() where index % 2 == 1 {
            // Files, which have a language; a picture, and the failure that scripts read.
            guard block.hasPrefix("\n"), !block.contains("│"), !block.contains("{\"error\"") else { continue }
            let lines = block.replacing(/\\\n */, with: "").split(separator: "\n")
            for line in lines {
                let comment = line.firstMatch(of: /\s+# .*$/)
                found.append(
                    PageCommand(
                        place: "\(page): \(line)",
                        text: String(line[..<(comment?.range.lowerBound ?? line.endIndex)]),
                        comment: comment.map { String($0.output) } ?? ""))
            }
        }
        return found
    }

    /// The command of OPERATIONS.md that begins with these words, and the one that has nothing else if there are several.
    static func operations(_ words: String) throws -> PageCommand {
        let found = try all(of: "deploy/OPERATIONS.md").filter { $0.begins(words) }
        guard let command = found.first(where: { $0.text == words }) ?? found.first else {
            throw PeerError("no page has: \(words)")
        }
        return command
    }
}
