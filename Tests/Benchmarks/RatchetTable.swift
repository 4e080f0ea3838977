/// Our ratchet library beside others, each in a process of its own that is started again for every round.
struct RatchetTable {
    /// A library, as a row of the tables.
    private struct Library {
        let name: String
        let program: String
        var arguments: [String] = []
        let isOurs: Bool
        var figures: [String: [Double]] = [:]

        /// The median of what was measured; not a number where nothing was.
        func figure(_ name: String) -> Double { self.figures[name]?.median ?? .nan }
    }

    /// What every peer does, in the order of the columns.
    private static let works = ["setup", "encrypt", "decrypt", "ping-pong", "group-encrypt", "group-decrypt"]

    let workbench: Workbench
    let isQuick: Bool

    private func libraries(_ directory: String) throws -> [Library] {
        let ours = try ChildProcess.ownPath()
        return [
            Library(name: "pawl, native", program: ours, arguments: ["ratchet-load"], isOurs: true),
            Library(name: "pawl, `axolotl`", program: ours, arguments: ["omemo-load"], isOurs: true),
            Library(name: "pawl, `omemo2`", program: ours, arguments: ["omemo-load", "--omemo2"], isOurs: true),
        ]
            + ["libsignal-protocol-c", "libomemo-c", "libolm", "vodozemac"].map {
                Library(name: $0, program: "\(directory)/\($0)", isOurs: false)
            }
    }

    func print() throws {
        guard let directory = self.workbench.ratchetPeers else { throw Failure("the ratchet's peers are not built") }
        let rounds = self.isQuick ? 1 : 9
        var libraries = try self.libraries(directory)
        var complaints: [String] = []
        // The last round counts allocations, which takes time, so its times are not used.
        for round in 1...rounds + 1 {
            let isCounting = round > rounds
            progress("ratchet: \(isCounting ? "allocations" : "round \(round) of \(rounds)")")
            for index in libraries.indices {
                do {
                    let counter = isCounting ? "\(directory)/allocations.so" : nil
                    for (name, number) in try self.measure(libraries[index], counter: counter)
                    where name.hasSuffix("-allocations") == isCounting {
                        libraries[index].figures[name, default: []].append(number)
                    }
                } catch {
                    complaints.append("\(libraries[index].name): \(error)")
                }
            }
        }
        self.printTimes(libraries, rounds: rounds, complaints)
        self.printSizes(libraries)
    }

    private func measure(_ library: Library, counter: String?) throws -> [String: Double] {
        let child = try ChildProcess(
            library.program, library.arguments, environment: counter.map { ["LD_PRELOAD": $0] } ?? [:],
            log: "\(self.workbench.directory)/ratchet.log")
        var figures: [String: Double] = [:]
        for line in try child.waitForEnd().split(separator: "\n") {
            let words = line.split(separator: " ")
            guard words.count == 2, let number = Double(words[1]) else { throw Failure("it printed: \(line)") }
            figures[String(words[0])] = number
        }
        return figures
    }

    private func printTimes(_ libraries: [Library], rounds: Int, _ complaints: [String]) {
        var table = MarkdownTable(
            "Ratchets: processor time in µs, and how many times the best peer's",
            [
                "library", "set-up, both sides", "encrypt", "decrypt", "ping-pong, a message", "group, encrypt",
                "group, decrypt",
            ])
        for library in libraries {
            table.add(
                [library.name]
                    + Self.works.map { work in
                        let best = libraries.filter { !$0.isOurs }.map { $0.figure(work) }.filter(\.isFinite).min()
                        let time = library.figure(work)
                        return time.isFinite ? "\(time.text(1)) (\((time / (best ?? .nan)).text(2)))" : "–"
                    })
        }
        complaints.forEach { table.note($0) }
        table.note(
            "\(rounds == 1 ? "One round" : "Medians of \(rounds) rounds"), the libraries one after the other in each; "
                + "256-byte messages. Set-up: both sides and the first message, without making the prekeys; ours checks two "
                + "signatures and has ML-KEM-1024, libsignal-protocol-c and libomemo-c check one, the other two none.")
        table.note(
            "libsignal-protocol-c and libomemo-c store and load a record for each message, in memory, as their API has "
                + "it; vodozemac is called from Python.")
        table.print()
    }

    private func printSizes(_ libraries: [Library]) {
        var table = MarkdownTable(
            "Ratchets: heap allocations a message, and bytes",
            ["library"] + Self.works + ["message on the wire", "group message", "state"])
        for library in libraries {
            table.add(
                [library.name] + Self.works.map { library.figure("\($0)-allocations").text(1) }
                    + ["message-bytes", "group-bytes", "state-bytes"].map { library.figure($0).text() })
        }
        table.note(
            "Calls of malloc and its kin. Messages carry 256 bytes; libolm's are base64. The state is as each library "
                + "stores it, after 1000 messages one way, without skipped keys; vodozemac's is base64 of encrypted JSON."
        )
        table.print()
    }
}
