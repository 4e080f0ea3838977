import Foundation
import PeerKit
import TestThreads
import Testing

/// The page that says how to write a mapping: every example on it does what the page says.
@Suite(.blocking) struct MappingPageTests {
    static let page = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent().appending(path: "config/mappings/README.md")

    /// A fenced block: its language, the file that it is, and its lines.
    struct Block {
        let language: String
        let file: String?
        let lines: [String]
    }

    static func blocks() throws -> [Block] {
        var blocks: [Block] = []
        var open: (words: [String], lines: [String])?
        for line in try String(contentsOf: page, encoding: .utf8).split(
            separator: "\n", omittingEmptySubsequences: false)
        {
            if line.hasPrefix("```") {
                if let block = open {
                    blocks.append(
                        Block(
                            language: block.words[0], file: block.words.count > 1 ? block.words[1] : nil,
                            lines: block.lines))
                    open = nil
                } else {
                    open = (line.dropFirst(3).split(separator: " ").map(String.init), [])
                }
            } else {
                open?.lines.append(String(line))
            }
        }
        return blocks
    }

    @Test func everyExampleHolds() throws {
        let scratch = try ScratchDirectory()
        let blocks = try Self.blocks()
        #expect(Set(blocks.map(\.language)) == ["yaml", "http", "sh", "text", "json", "console"])
        for block in blocks {
            guard let file = block.file else { continue }
            _ = try scratch.write(file, block.lines.joined(separator: "\n") + "\n")
        }
        var output = ""
        var checked = 0
        for block in blocks {
            switch block.language {
            case "sh":
                output = ""
                for line in block.lines {
                    let words = line.split(separator: " ").map(String.init)
                    #expect(words[0] == "pawl")
                    let run = try PawlProcess.run(
                        words.dropFirst().map { word in
                            blocks.contains { $0.file == word } ? scratch.file(word) : word
                        })
                    #expect(run.succeeded, "\(line): \(run.stdout)\(run.stderr)")
                    output += run.stdout
                }
            case "text":
                for line in block.lines {
                    #expect(output.contains(line.drop { $0 == " " }), "\(line) is not in \(output)")
                    checked += 1
                }
            default: break
            }
        }
        #expect(checked == 14)
    }

    @Test func theCommandReportsItsResult() throws {
        let scratch = try ScratchDirectory()
        let mapping = Self.page.deletingLastPathComponent().appending(path: "generic.yaml").path
        _ = try scratch.write("good", "POST /conversations/c/messages\n\n{\"text\":\"x\"}")
        _ = try scratch.write("bad", "POST /conversations/c/messages\n\n{\"txt\":\"x\"}")
        _ = try scratch.write("none", "")
        _ = try scratch.write("wrong.yaml", "name: a\n")
        let check = ["config", "check", "--mapping"]
        #expect(try PawlProcess.run(check + [mapping]).stdout.contains("is well formed"))
        let json = try PawlProcess.run(check + [mapping, "--request", scratch.file("good"), "--json"])
        let trials = try #require(try JSONSerialization.jsonObject(with: Data(json.stdout.utf8)) as? [[String: Any]])
        #expect(json.succeeded && trials.first?["label"] as? String == "content")
        #expect(try PawlProcess.run(check + [mapping, "--request", scratch.file("bad")]).status == .exited(1))
        #expect(try PawlProcess.run(check + [mapping, "--request", scratch.file("none")]).status == .exited(78))
        #expect(try PawlProcess.run(check + [mapping, "--request", scratch.file("absent")]).status == .exited(78))
        // A configuration is not better than the mapping that it names.
        for (name, words) in [("absent", "no such file"), ("wrong.yaml", "has no `account`")] {
            let configuration = """
                listen: [http://127.0.0.1:8080]
                upstream: {url: http://127.0.0.1:8081}
                mapping: \(scratch.file(name))
                data: \(scratch.file("data"))
                metrics: {listen: ""}

                """
            _ = try scratch.write("pawl.yaml", configuration)
            for command in [["config", "check"], ["serve", "--config"]] {
                let run = try PawlProcess.run(command + [scratch.file("pawl.yaml")])
                #expect(run.status == .exited(78) && run.stderr.contains(words), "\(command): \(run.stderr)")
            }
        }
        let wrong = try PawlProcess.run(check + [scratch.file("wrong.yaml")])
        #expect(wrong.status == .exited(78) && wrong.stderr.contains("has no `account`"))
        for words in [
            ["config", "check"], check + [mapping, "--response", "x"], check + [mapping, "--frame", "x"],
            ["config", "check", "x", "--request", "y"], check + [mapping, "--request", "-", "--response", "-"],
        ] {
            #expect(try PawlProcess.run(words).status == .exited(64), "\(words)")
        }
    }
}
